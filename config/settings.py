"""Django settings. All differences between installations are read by `config.environment`."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import dj_database_url
from django.utils.translation import gettext_lazy as _

from brokers.contract.zookeeper_tls import zookeeper_tls
from config.environment import (
    BASE_DIR,
    PROCESS_VARIABLE,
    Environment,
    dns_servers,
    flag,
    https_template,
    named_networks,
    positive,
    trusted_proxies,
    whole_days,
)
from config.logging import logging_settings
from config.public_url import is_loopback
from config.schedule import BEAT_SCHEDULE
from config.web.limits import BODY_BYTES_MAX
from tenants import conf as tenants_conf
from tenants import limits as tenants_limits

ENVIRONMENT = Environment.read()

# Addresses and paths. Other apps use these names and never read environment variables.
STATE_DIR = ENVIRONMENT.state_dir
PUBLIC_URL = ENVIRONMENT.public_url
PUBLIC_URL_IS_LOOPBACK = is_loopback(PUBLIC_URL)
REDIS_URL = ENVIRONMENT.redis_url
ZOOKEEPER_URL = ENVIRONMENT.zookeeper_url  # host:port[,host:port]; the cluster's chroot is appended
ZOOKEEPER_CONTROL_FILE = ENVIRONMENT.zookeeper_control_file  # files with user:password, or "" for both
ZOOKEEPER_BROKER_FILE = ENVIRONMENT.zookeeper_broker_file
# Set for ZooKeeper with TLS; brokers get their client certificate from their agents.
ZOOKEEPER_TLS = zookeeper_tls(ENVIRONMENT.zookeeper_ca_file, ENVIRONMENT.zookeeper_control_certificate_file)
ZOOKEEPER_BROKER_CERTIFICATE_FILE = ENVIRONMENT.zookeeper_broker_certificate_file
SPARK_MASTER = ENVIRONMENT.spark_master
# A backlog of at least this many records is read by Spark, whose JVM stops after this many idle minutes.
SPARK_FROM_RECORDS = int(positive("PENSTOCK_SPARK_FROM_RECORDS", 1_000_000))
SPARK_KEPT_MINUTES = positive("PENSTOCK_SPARK_KEPT_MINUTES", 5)
LAKE_URL = ENVIRONMENT.lake_url  # file: or s3: address for usage as Parquet
# Older metered minutes are dropped. A past month is shown in minutes for some more days.
USAGE_MINUTES_KEPT_DAYS = whole_days("PENSTOCK_USAGE_MINUTES_KEPT_DAYS", 35, minimum=32)
# Days for which a topic deleted in the console or over REST can be restored.
DELETED_TOPICS_KEPT_DAYS = whole_days("PENSTOCK_DELETED_TOPICS_KEPT_DAYS", 7, minimum=1)
ARCHIVE_ROOT = ENVIRONMENT.archive_root  # parent of tenants' archives at file:, with a folder for each
CONTROL_SECRET_FILE = ENVIRONMENT.control_secret_file
TLS_DIR = ENVIRONMENT.tls_dir  # ca.pem, its key, and a file for each broker
INTERNAL_SECURITY = ENVIRONMENT.internal_security
INTERNAL_TLS_DIR = ENVIRONMENT.internal_tls_dir  # the same for communication among our own processes
INTERNAL_CERTIFICATE_FILE = ENVIRONMENT.internal_certificate_file  # certificate of this process

DEBUG = flag("PENSTOCK_DEBUG", default=False)
SECRET_KEY = ENVIRONMENT.secret_key
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", urlsplit(PUBLIC_URL).hostname or "localhost"]
ALLOWED_HOSTS += [host for host in os.environ.get("PENSTOCK_ALLOWED_HOSTS", "").split(",") if host]
TRUSTED_PROXIES = trusted_proxies()
IS_HTTPS = PUBLIC_URL.startswith("https://")

INSTALLED_APPS = [
    "tenants",
    "quotas",
    "instances",
    "brokers",
    "notifications",
    "billing",
    "archives",
    "config",
    "django_countries",
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "django_filters",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]

MIDDLEWARE = [
    "config.middleware.ClientAddressMiddleware",
    "config.middleware.SecurityHeadersMiddleware",
    tenants_conf.MIDDLEWARE,
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "tenants.middleware.SessionSeenMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "tenants.middleware.SsoSessionMiddleware",
    "tenants.middleware.OperatorMiddleware",
    "tenants.middleware.BusyMiddleware",
    "tenants.middleware.ZeroByteMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "tenants.middleware.AccountPagesMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- data ---------------------------------------------------------------------------------------------------------

DATABASES = {
    "default": dj_database_url.parse(
        ENVIRONMENT.database_url, conn_max_age=600, conn_health_checks=True, engine="django.db.backends.postgresql"
    )
}
# A server that vanishes silently (machine or network) is given up after seconds, because agents have other work.
DATABASES["default"]["OPTIONS"] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    **DATABASES["default"].get("OPTIONS", {}),
}
# Limits how long a request holds a thread and row locks; see `config.web.limits.ANSWER_S`.
WEB_STATEMENT_TIMEOUT_MS = 20_000
if os.environ.get(PROCESS_VARIABLE) == "web":
    DATABASES["default"]["OPTIONS"].setdefault("options", f"-c statement_timeout={WEB_STATEMENT_TIMEOUT_MS}")
CACHES = {
    "default": {
        "BACKEND": "config.cache.ForgivingRedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "penstock",
        # version 1 was pickled: its remaining entries expire unread
        "VERSION": 2,
        "KEY_FUNCTION": "config.cache.bounded_key",
        "OPTIONS": {"socket_connect_timeout": 1, "socket_timeout": 2},
    }
}
SESSION_ENGINE = "config.sessions"
# Idle and absolute timeouts of a session.
SESSION_IDLE_S = positive("PENSTOCK_SESSION_IDLE_HOURS", tenants_limits.SESSION_IDLE_HOURS) * 3_600
SESSION_DAYS_MAX = positive("PENSTOCK_SESSION_DAYS_MAX", tenants_limits.SESSION_DAYS_MAX)
SESSION_COOKIE_AGE = round(SESSION_DAYS_MAX * 86_400)

# --- authentication -----------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "tenants.User"
# One backend: each attempt costs one hashing, whether or not the account exists.
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
PASSWORD_HASHERS = ["tenants.hashing.Argon2InTurn", "tenants.hashing.PBKDF2InTurn"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "tenants.common_passwords.DisguisedPasswordValidator"},
    {"NAME": "tenants.breached_passwords.BreachedPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
BREACHED_PASSWORDS_FILE = os.environ.get("PENSTOCK_BREACHED_PASSWORDS_FILE", "")
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"  # implemented in `tenants.services.mailboxes`
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_RATE_LIMITS = tenants_conf.ACCOUNT_RATE_LIMITS
ACCOUNT_ADAPTER = "tenants.account_adapter.AccountAdapter"
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[Penstock] "
ACCOUNT_FORMS = tenants_conf.ACCOUNT_FORMS
# Time after a sign-in or reauthentication without another reauthentication.
REAUTHENTICATION_S = positive("PENSTOCK_REAUTHENTICATION_MINUTES", tenants_limits.REAUTHENTICATION_MINUTES) * 60
ACCOUNT_REAUTHENTICATION_TIMEOUT = REAUTHENTICATION_S
MFA_ADAPTER = "tenants.second_factor.adapter.SecondFactorAdapter"
MFA_FORMS = tenants_conf.MFA_FORMS
MFA_RATE_LIMITS = tenants_conf.MFA_RATE_LIMITS
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ALLOW_UNVERIFIED_EMAIL = True  # `tenants.services.mailboxes` decides who may sign in
MFA_RECOVERY_CODE_COUNT = tenants_limits.RECOVERY_CODES
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_TOTP_ISSUER = "Penstock"
MFA_TOTP_TOLERANCE = tenants_limits.CODE_STEPS_TOLERATED
# Operators must set up a second factor, except for a demo on loopback.
OPERATORS_NEED_SECOND_FACTOR = flag("PENSTOCK_OPERATORS_NEED_SECOND_FACTOR", default=not PUBLIC_URL_IS_LOOPBACK)

# --- mail ---------------------------------------------------------------------------------------------------------

PRINTED_MAIL = "django.core.mail.backends.console.EmailBackend"
EMAIL_HOST = os.environ.get("PENSTOCK_EMAIL_HOST", "localhost")
EMAIL_BACKEND = os.environ.get(
    "PENSTOCK_EMAIL_BACKEND",
    "django.core.mail.backends.smtp.EmailBackend" if "PENSTOCK_EMAIL_HOST" in os.environ else PRINTED_MAIL,
)
# True if mails are delivered; addresses are then verified.
MAIL_IS_CONFIGURED = EMAIL_BACKEND not in (PRINTED_MAIL, "django.core.mail.backends.dummy.EmailBackend")
# Without mail a sign-up reveals whether an address has an account. Beyond loopback, accounts are therefore created by
# invitation or by `manage.py create_tenant`.
SIGN_UP_IS_OPEN = flag("PENSTOCK_SIGN_UP_OPEN", default=MAIL_IS_CONFIGURED or PUBLIC_URL_IS_LOOPBACK)
EMAIL_PORT = int(os.environ.get("PENSTOCK_EMAIL_PORT", "587" if flag("PENSTOCK_EMAIL_TLS", default=False) else "25"))
EMAIL_USE_TLS = flag("PENSTOCK_EMAIL_TLS", default=False)
EMAIL_HOST_USER = os.environ.get("PENSTOCK_EMAIL_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("PENSTOCK_EMAIL_PASSWORD", "")
EMAIL_TIMEOUT = 5  # timeout of the mail server in seconds, while a page waits
DEFAULT_FROM_EMAIL = os.environ.get(
    "PENSTOCK_EMAIL_FROM", f"Penstock <penstock@{urlsplit(PUBLIC_URL).hostname or 'localhost'}>"
)

# --- browser security ----------------------------------------------------------------------------------------------

CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = IS_HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = LANGUAGE_COOKIE_SAMESITE = "Lax"
# Only from a trusted proxy: ClientAddressMiddleware removes it from any other request.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if IS_HTTPS else None
SECURE_SSL_REDIRECT = IS_HTTPS
# Supervisors and orchestrators on the same network use HTTP, and would take a redirect for an answer.
SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$"]
SECURE_HSTS_SECONDS = 31_536_000 if IS_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = IS_HTTPS
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = BODY_BYTES_MAX
FILE_UPLOAD_HANDLERS = ["config.uploads.NoFiles"]

# --- texts and files ----------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = ["config.formats"]
STATIC_URL = "static/"
STATIC_ROOT = os.environ.get("PENSTOCK_STATIC_ROOT")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
# Files are served directly from the packages without collectstatic. To serve them with another program, set
# PENSTOCK_STATIC_ROOT and run collectstatic.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

# --- REST API -------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = tenants_conf.REST_FRAMEWORK
SPECTACULAR_SETTINGS = tenants_conf.SPECTACULAR_SETTINGS | {
    # Clusters and instances have the same two values; the schema needs one name for them.
    "ENUM_NAME_OVERRIDES": {
        "AlertKindEnum": "notifications.models.alerts.AlertKind",
        "ArchiveStateEnum": "archives.models.ArchiveState",
        "OnTroubleEnum": "archives.models.OnTrouble",
        "ValueFormatEnum": "archives.models.ValueFormat",
        "ClusterStateEnum": "brokers.choices.ClusterState",
        "HostCheckEnum": "brokers.choices.HostCheck",
        "HostCheckStateEnum": "brokers.choices.HostCheckState",
        "OperationStateEnum": "instances.choices.OperationState",
        "ClusterTypeEnum": "instances.choices.ClusterType",
        "StorageWhenFullEnum": "instances.choices.StorageWhenFull",
        "RouteSecurityEnum": "instances.routes.kinds.SECURITIES",
        "SentFormatEnum": "instances.messages.content.SENT_AS",
        "ShownFormatEnum": "instances.messages.content.SHOWN_FORMATS",
        "SchemaFormatEnum": "instances.messages.schemas.sources.FORMATS",
        "SchemaPartEnum": "instances.api.topic_schemas.SCHEMA_PARTS",
        "MessagePartEnum": "instances.messages.masks.PARTS",
        "RoleEnum": "tenants.choices.Role",
        "SsoRoleEnum": "tenants.choices.SSO_ROLES",
        "TopicCopyStateEnum": "instances.copying.models.CopyState",
        "TopicStateEnum": "instances.choices.TopicState",
        "UserStateEnum": "instances.api.user_serializers.STATES",
    },
}

# --- background tasks -----------------------------------------------------------------------------------------------

CELERY_BROKER_URL = ENVIRONMENT.celery_broker_url
CELERY_TASK_SERIALIZER = CELERY_EVENT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = CELERY_RESULT_ACCEPT_CONTENT = ["json"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Timeouts for a silent Redis, for senders of tasks as well as beat and workers.
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 1, "socket_timeout": 2}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = float(os.environ.get("PENSTOCK_WORKER_SOFT_STOP_S", "0"))
CELERY_TASK_DEFAULT_QUEUE = "penstock"
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULE = BEAT_SCHEDULE
CELERY_BEAT_SCHEDULER = "config.beat:Scheduler"

# Settings of requests to addresses given by tenants (tenants/outbound.py).
OUTBOUND_PRIVATE_ADDRESSES = named_networks("PENSTOCK_OUTBOUND_PRIVATE_ADDRESSES")
OUTBOUND_REFUSED_ADDRESSES = named_networks("PENSTOCK_OUTBOUND_REFUSED_ADDRESSES")
# One secret, or two during rotation; without one no payment provider is connected.
PAYMENTS_SECRETS = tuple(secret for secret in os.environ.get("PENSTOCK_PAYMENTS_SECRETS", "").split(",") if secret)
# URL of the payment page of an open invoice, with {invoice}, {amount} and {currency}.
PAYMENTS_LINK = https_template("PENSTOCK_PAYMENTS_LINK")
# Name servers that are asked for proofs of e-mail domains (tenants/sso/domains.py).
DNS_SERVERS = dns_servers()
OUTBOUND_CA_FILE = os.environ.get("PENSTOCK_OUTBOUND_CA_FILE", "")

UNFOLD = tenants_conf.UNFOLD
PENSTOCK_ENVIRONMENT = os.environ.get("PENSTOCK_ENVIRONMENT", "")

LOGGING = logging_settings(
    level=os.environ.get("PENSTOCK_LOG_LEVEL", "INFO"), as_json=flag("PENSTOCK_LOG_JSON", default=True)
)
