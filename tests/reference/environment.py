"""The variables of the environment that the product reads, and what each means."""

from __future__ import annotations

VARIABLES = {
    "DATABASE_URL": "PostgreSQL, as `postgres://user:password@host:5432/name`",
    "REDIS_URL": (
        "Redis or Valkey, as `redis://:password@host:6379/0`, "
        "`rediss://:password@host:6379/0?ssl_ca_certs=/path/ca.pem` or `unix://:password@/path/to/socket?db=0`"
    ),
    "ZOOKEEPER_URL": "ZooKeeper, as `zk1:2181,zk2:2181,zk3:2181`",
    "SPARK_MASTER": "where large runs of the pipeline and archives run; `local[*]` by default",
    "PENSTOCK_SPARK_FROM_RECORDS": (
        "a backlog of so many usage records of a cluster is worked off by Spark, a smaller one by the pipeline's "
        "worker itself; 1,000,000"
    ),
    "PENSTOCK_SPARK_KEPT_MINUTES": "Spark and its Java end after so many minutes without work; 5",
    "PENSTOCK_USAGE_MINUTES_KEPT_DAYS": "metered minutes are dropped after so many days; 35, and 32 at least",
    "PENSTOCK_DELETED_TOPICS_KEPT_DAYS": "a topic that its owner deletes can be restored for so many days; 7",
    "PENSTOCK_LAKE_URL": "where usage reports are kept as Parquet, `file:` or `s3:`; by default below the state dir",
    "PENSTOCK_ARCHIVE_ROOT": "where tenants' archives at `file:` lie; without it there are none",
    "SECRET_KEY": "Django's key; by default `secrets/secret_key` of the state directory",
    "PENSTOCK_ALLOWED_HOSTS": "further host names that web answers to, separated by commas",
    "PENSTOCK_TLS_DIR": "where the certificate authority and the brokers' certificates are; by default `secrets/tls`",
    "PENSTOCK_BREACHED_PASSWORDS_FILE": (
        "a file of leaked passwords, which are refused: Have I Been Pwned's SHA-1 digests ordered by hash; none by "
        "default"
    ),
    "PENSTOCK_CONTROL_SECRET_FILE": (
        "the file of the secret that opens internal ports where `PENSTOCK_INTERNAL_SECURITY` lets it; by default "
        "`secrets/control_secret`"
    ),
    "PENSTOCK_PAYMENTS_SECRETS": (
        "what a payment provider signs its reports to `/payments/webhook` with, `whsec_` and base64; two with a comma "
        "between while it is rotated; without one no provider is connected"
    ),
    "PENSTOCK_PAYMENTS_LINK": (
        "the page of a payment provider where an open invoice is paid, `https://` with `{invoice}`, `{amount}` and "
        "`{currency}` in it; without one invoices have no *Pay*"
    ),
    "PENSTOCK_DEBUG": "Django's debug mode; off by default",
    "PENSTOCK_EMAIL_BACKEND": "Django's e-mail backend; by default mails are printed to the log of web",
    "PENSTOCK_EMAIL_FROM": "who mails come from; by default `Penstock <penstock@HOST>` with the public URL's host",
    "PENSTOCK_EMAIL_HOST": "the mail server; with it mail is sent by SMTP and e-mail addresses are verified",
    "PENSTOCK_EMAIL_PASSWORD": "the password at the mail server",
    "PENSTOCK_EMAIL_PORT": "the mail server's port; by default 25, and 587 with TLS",
    "PENSTOCK_EMAIL_TLS": "`1` for STARTTLS; off by default",
    "PENSTOCK_EMAIL_USER": "the name at the mail server",
    "PENSTOCK_DNS_SERVERS": (
        "name servers that are asked whether a tenant controls an e-mail domain, separated by commas, with or without "
        "port; those of the machine by default"
    ),
    "PENSTOCK_ENVIRONMENT": "a name that the operator panel shows",
    "PENSTOCK_HOST": "the agent's host in a Compose file of `manage.py units`; read by Compose alone",
    "PENSTOCK_IMAGE": "the image of all programs there, likewise",
    "PENSTOCK_INTERNAL_CERTIFICATE_FILE": (
        "key and certificate of this program; by default `control-PROCESS.pem` of `PENSTOCK_INTERNAL_TLS_DIR`"
    ),
    "PENSTOCK_INTERNAL_SECURITY": (
        "how brokers, control plane and agents know each other: `tls` (the default), `tls_or_secret`, where the "
        "control secret opens internal ports as well, or `plaintext`, where it alone does and nothing is encrypted"
    ),
    "PENSTOCK_INTERNAL_TLS_DIR": (
        "where the authority of our own processes and their certificates are; by default `secrets/internal_tls`"
    ),
    "PENSTOCK_LOG_JSON": "JSON lines unless `0`",
    "PENSTOCK_LOG_LEVEL": "`INFO` by default",
    "PENSTOCK_APACHE_KAFKA_JARS": "folder with the jars of an Apache Kafka, for `up --kafka` and for tests against one",
    "PENSTOCK_NATIVE": "`0` builds and uses no compiled modules",
    "PENSTOCK_NATIVE_DIR": "where builds of compiled modules lie; `.native/` of the checkout by default",
    "PENSTOCK_NATIVE_NOTE": "the file by which an agent tells its brokers about the build; set by the agent",
    "PENSTOCK_OPERATORS_NEED_SECOND_FACTOR": (
        "whether operators set up a second factor before anything else; `1` unless the public URL is on loopback"
    ),
    "PENSTOCK_OPERATOR_PASSWORD": "the password for `manage.py create_operator`",
    "PENSTOCK_PROCESS": (
        "which program this is, and whose certificate it shows: `web`, `worker`, `agent`, `pipeline`, or `command`, "
        "the default; set by `up` for what it starts"
    ),
    "PENSTOCK_OUTBOUND_CA_FILE": (
        "authorities (PEM) that addresses named by tenants may have their certificates from: beside the system's, and "
        "alone for archives in S3 and databases; none by default"
    ),
    "PENSTOCK_OUTBOUND_PRIVATE_ADDRESSES": (
        "private addresses and networks that tenants may have asked by our machines (key sets of OAuth), separated by "
        "commas; none by default"
    ),
    "PENSTOCK_OUTBOUND_REFUSED_ADDRESSES": (
        "public addresses and networks that are not asked for tenants, such as your own, separated by commas; none by "
        "default"
    ),
    "PENSTOCK_PUBLIC_URL": (
        "the console's address, which links in mails begin with; must be set beyond loopback; `https://` turns on "
        "secure cookies, HSTS and the redirect"
    ),
    "PENSTOCK_REAUTHENTICATION_MINUTES": (
        "how long after a sign-in, or after being asked again, a person is not asked again before making tokens, "
        "owners and the like; `10` by default"
    ),
    "PENSTOCK_SESSION_DAYS_MAX": "after so many days a session ends in any case; `14` by default",
    "PENSTOCK_SESSION_IDLE_HOURS": "a session in which no page is opened for so long ends; `24` by default",
    "PENSTOCK_SIGN_UP_OPEN": (
        "whether anybody may sign up; `1` where mail is configured and on loopback, else accounts are made by "
        "invitation"
    ),
    "PENSTOCK_STATE_DIR": "the state directory; `var/` by default",
    "PENSTOCK_STATIC_ROOT": "where `collectstatic` puts files, if another program serves them",
    "PENSTOCK_ZOOKEEPER_BROKER_CERTIFICATE_FILE": (
        "a file with the key and the certificate that brokers show to an external ZooKeeper, where it asks for one"
    ),
    "PENSTOCK_ZOOKEEPER_CA_FILE": (
        "the authority of an external ZooKeeper's certificates; with it ZooKeeper is spoken to under TLS"
    ),
    "PENSTOCK_ZOOKEEPER_CONTROL_CERTIFICATE_FILE": "the same as brokers have, for web, worker and agent",
    "PENSTOCK_ZOOKEEPER_BROKER_FILE": "a file with `user:password`, as whom brokers speak to an external ZooKeeper",
    "PENSTOCK_ZOOKEEPER_CONTROL_FILE": "the same for web, worker and agent; both or neither",
    "PENSTOCK_TRUSTED_PROXIES": (
        "addresses and networks of proxies, separated by commas, whose `X-Forwarded-For` and `X-Forwarded-Proto` "
        "count; none by default"
    ),
    "PENSTOCK_WORKER_SOFT_STOP_S": "seconds that a worker finishes its tasks in when it is stopped; `0` by default",
}
