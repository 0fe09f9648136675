"""Translation of refusals of services into the reader's language.

Services use English, because programs read them too. A sentence with values is a `tenants.errors.Message` and carries
its message id, also in rows (`tenants.message_field`). Only texts of brokers are recognised by pattern. Sentences that
are not in the catalog, and those that rows of earlier versions store without their id, are shown in English.
"""

from __future__ import annotations

import re
from functools import cache

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from tenants.errors import Message

SENTENCES = (
    gettext_noop("The token is revoked already."),
    gettext_noop("Sign in first."),
    gettext_noop("Confirm that it is you in the console, then try again."),
    gettext_noop("Set up a second factor of your own first."),
    gettext_noop("Only owners decide whether members need a second factor."),
    gettext_noop("Only operators take second factors away."),
    gettext_noop("Operators need a second factor. Set one up in the console under Security."),
    gettext_noop("The tenant asks its members for a second factor. Set one up under Security."),
    gettext_noop("The tenant is open through its single sign-on only. Sign in there."),
    gettext_noop("Sign in with your password or passkey for this."),
    gettext_noop("Enter the client secret that the provider gave you."),
    gettext_noop("Enter the client secret again: issuer or client id have changed."),
    gettext_noop("No provider makes owners. Choose another role."),
    gettext_noop("This value has another role already."),
    gettext_noop("Name a claim and at least one value with its role, or neither."),
    gettext_noop("The provider can make admins. This needs a role and a token that may do all that admins may."),
    gettext_noop("There is no such session."),
    gettext_noop("There is none."),
    gettext_noop("The token is unknown, expired or revoked."),
    gettext_noop("Too many failed sign-ins. Wait a few minutes, or choose a new password by e-mail."),
    gettext_noop("Too many sign-ins at the moment. Try again in a few seconds."),
    gettext_noop("No broker of the cluster answers at the moment."),
    gettext_noop("Instances still have ports on this broker. Drain it first."),
    gettext_noop("There is no deleted topic of this name."),
    gettext_noop("There is another topic of this name."),
    gettext_noop("The topic has a schema for these values. Delete it first."),
    gettext_noop("As many streams of messages are open as may be. Close one, or try again in a minute."),
    gettext_noop("Say which rules: name at least one part of them."),
    gettext_noop("Partitions are numbers from 0 on."),
    gettext_noop("An offset is a number from 0 on, or -1 for all that is there."),
    gettext_noop("Give offsets by partition, or a time."),
    gettext_noop("The last port is below the first one."),
    gettext_noop("This is no host name and no address. A port is not part of it."),
    gettext_noop("This directory is named twice."),
    gettext_noop("There is no such host."),
    gettext_noop("The brokers are even: nothing to move."),
    gettext_noop("Another change of this topic is being carried out."),
    gettext_noop("Another change of this user is being carried out."),
    gettext_noop("Another change of the access rules is being carried out."),
    gettext_noop("Another copy of a topic is being begun or stopped."),
    gettext_noop(
        "The topic was deleted and can be restored. When it is restored, the archive goes on where it stopped."
    ),
    gettext_noop("The topic that is copied, or its copy, was deleted or made again."),
    gettext_noop("The brokers of the instance sent no records. They are asked again."),
    gettext_noop(
        "Another client wrote to the copy while an answer of the brokers was lost, so it is not known what is missing."
        " Delete the copy, and clone the topic again."
    ),
    gettext_noop("A request with this Idempotency-Key is being carried out."),
    gettext_noop("There is no such connection."),
    gettext_noop("An absolute path."),
    gettext_noop("Another broker keeps its log there."),
    gettext_noop("No other broker takes the instance."),
    gettext_noop("The broker is removed."),
    gettext_noop("Another cluster has this name."),
    gettext_noop("Another host has this name."),
    gettext_noop("The host is removed."),
    gettext_noop("The cluster is being retired."),
    gettext_noop("A rebalance of the cluster is under way."),
    gettext_noop("A rolling restart of the cluster is under way."),
    gettext_noop("Its brokers listen there. Remove them first."),
    gettext_noop("Clients of instances know that address. Move the instances first."),
    gettext_noop("There is no place for everything on that broker. Add a broker, or give topics fewer replicas."),
    gettext_noop("The broker is being removed. Add it again instead."),
    gettext_noop("The route has no authority of clients yet. Set client-ca first."),
    gettext_noop("Only a route with security mtls asks clients for certificates."),
    gettext_noop("Only a route with security tls, sasl_tls or mtls has a certificate."),
    gettext_noop("The route has none."),
    gettext_noop("Give either jwks_url or jwks: the keys must come from one place."),
    gettext_noop("Replicas have moved since this was planned. Plan again."),
    gettext_noop("A rolling restart is under way in this cluster."),
    gettext_noop("A later rebalance builds on this one."),
    gettext_noop("Another rebalance of this cluster is under way."),
    gettext_noop("No broker of this cluster shall run."),
    gettext_noop("The broker is stopped on purpose."),
    gettext_noop("ZooKeeper does not answer."),
    gettext_noop("There is no such limit."),
    gettext_noop("There is no such language."),
    gettext_noop("There is no such theme."),
    gettext_noop("The tenant is suspended already."),
    gettext_noop("The tenant is not suspended."),
    gettext_noop("Only operators suspend and resume tenants."),
    gettext_noop("There is no such scope."),
    gettext_noop("Name at least one known scope."),
    gettext_noop("The expiry has passed."),
    gettext_noop("A rebalance is under way in this cluster. Pause it first."),
    gettext_noop("A rolling restart of this cluster is under way."),
    gettext_noop("A coordinator does not answer: it may know of the transaction."),
    gettext_noop("A coordinator knows of the transaction and will end it."),
    gettext_noop("A lost broker has nothing to move back to."),
    gettext_noop("A topic never loses partitions."),
    gettext_noop("A tenant keeps at least one owner. Make another member owner first."),
    gettext_noop("This name means something else to Kafka. Choose another."),
    gettext_noop("The names . and .. mean a folder in an address. Choose another."),
    gettext_noop("The name is not in Unicode's normal form NFKC, so another name looks the same. Type it anew."),
    gettext_noop("The name mixes letters of several alphabets, which may look alike. Use one alphabet."),
    gettext_noop("Use printable characters, without spaces around them."),
    gettext_noop("Use printable characters."),
    gettext_noop("There is such a user already; choose another name."),
    gettext_noop("There is no such user."),
    gettext_noop("There is no operator with this e-mail address."),
    gettext_noop("The name is too long."),
    gettext_noop("This is the user's only password. Add another one first, or disable the user."),
    gettext_noop("The cluster has one name, kafka-cluster, and its pattern is literal."),
    gettext_noop("Write a user as User:name, and everybody as User:*."),
    gettext_noop("Use one IP address, or * for any. Networks are not known to Kafka's rules."),
    gettext_noop("Another of your instances has this name."),
    gettext_noop(
        "The instance is open: rules on every topic would close it to all users without rules. Close it first."
    ),
    gettext_noop("Instances close their ports on brokers they have left."),
    gettext_noop("Instances open their ports on other brokers."),
    gettext_noop("Its outcome is decided; what is missing is a marker."),
    gettext_noop("No transaction is open under this id."),
    gettext_noop("It goes on already. Try again in a minute."),
    gettext_noop("Join or create a tenant first."),
    gettext_noop("Members of the group read this topic."),
    gettext_noop("More is lost by now than when this was planned. Plan again."),
    gettext_noop("More is sold by now than when this was planned. Plan again."),
    gettext_noop("Name a user, a client id, or both; null means the default."),
    gettext_noop(
        "No broker has said whether this was carried out. Look at it again before you repeat it; "
        "the audit log has what was asked for."
    ),
    gettext_noop("No broker of the instance answers at the moment. Nothing is lost."),
    gettext_noop("No broker of this instance answers."),
    gettext_noop("No plan on sale is that large."),
    gettext_noop("Offsets have moved since, so the earlier ones are not put back."),
    gettext_noop("The broker is being removed. Abandon that first."),
    gettext_noop("The broker is not stopped."),
    gettext_noop("The emptier brokers have no room for what is sold on the others. Add a broker."),
    gettext_noop("The group has committed nothing. Name topics."),
    gettext_noop("The group has running members. Stop them first; Kafka refuses it otherwise."),
    gettext_noop("The instance has no brokers."),
    gettext_noop("The instance is being deleted already."),
    gettext_noop("The instance is being purged already."),
    gettext_noop("Only a deleted instance can be purged. Delete it first."),
    gettext_noop("The instance is not being deleted."),
    gettext_noop("The instance is protected from deletion. Take the protection away first."),
    gettext_noop("The other brokers have no room for what is sold there. Add a broker."),
    gettext_noop("The other brokers see it."),
    gettext_noop("The other brokers take over what they have copied."),
    gettext_noop("The offsets have changed since the table was made. Look at it again."),
    gettext_noop("The partition has no leader that answers at the moment."),
    gettext_noop("The partition's leader does not answer at the moment."),
    gettext_noop("The transaction has ended, or is not old enough to say that it hangs."),
    gettext_noop("The transaction has ended, or is within its time-out."),
    gettext_noop("The page token is not one of this list. Start again without it."),
    gettext_noop("The tenant is suspended until its invoice is paid. Reading still works."),
    gettext_noop("The tenant is suspended. Reading still works."),
    gettext_noop("The transaction's coordinator does not answer at the moment."),
    gettext_noop("The time in which the instance could be restored is over."),
    gettext_noop("There is an account with this e-mail address."),
    gettext_noop("There is no controller."),
    gettext_noop("There is no open invitation for you under this link."),
    gettext_noop("There is no such plan on sale."),
    gettext_noop("There is no such resource"),
    gettext_noop("There is no such time zone."),
    gettext_noop("There is no such topic or partition."),
    gettext_noop("There is no such topic."),
    gettext_noop("This is not allowed for you"),
    gettext_noop("This person has an open invitation. Revoke it first."),
    gettext_noop("This person is a member already."),
    gettext_noop("Too many changes of this instance are under way."),
    gettext_noop("Use whole bytes per second."),
    gettext_noop("You are a member already."),
    gettext_noop("You may revoke tokens you made yourself."),
    gettext_noop("it has no coordinator at the moment"),
    gettext_noop("its coordinator is loading"),
    gettext_noop("its coordinator is moving"),
)
# Texts of brokers with values: an error in Kafka's protocol has only a code and a text.
BROKER_SHAPES = (
    gettext_noop("Invalid value %(value)s for configuration %(name)s: Not a value of type %(type)s"),
    gettext_noop("Invalid value %(value)s for configuration %(name)s"),
    gettext_noop("The user has %(n)s secrets already; remove one first."),
    gettext_noop("Topic '%(name)s' already exists."),
    gettext_noop(
        "Topic '%(name)s' was deleted and can be restored. Restore it, or delete it for good, to use its name."
    ),
    gettext_noop("Topic '%(name)s' collides with existing topics: %(other)s"),
    gettext_noop("Topic config %(name)s is set by the operator and cannot be changed"),
    gettext_noop(
        "Topic name is invalid: '%(name)s' must be 1 to 249 of ASCII letters, digits, '.', '_' and '-', "
        "and not '.' or '..'."
    ),
    gettext_noop("The instance may have %(most)s partitions and has %(n)s; %(added)s more do not fit."),
    gettext_noop("Topic name '%(name)s' is reserved for the service's own records."),
    gettext_noop("Unknown topic config name: %(name)s"),
)
_VALUE = re.compile(r"%\\\((\w+)\\\)s|%\((\w+)\)s")


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(_VALUE.sub(lambda match: f"(?P<{match[1] or match[2]}>.+)", re.escape(shape)), re.DOTALL), shape)
        for shape in BROKER_SHAPES
    )


def localized(sentence: str) -> str:
    """Returns a service's sentence in the active language."""
    if isinstance(sentence, Message):
        return _(sentence.msgid) % {name: _value(value) for name, value in sentence.values.items()}
    for pattern, shape in _patterns() if sentence not in SENTENCES else ():
        result = pattern.fullmatch(sentence)
        if result:
            return _(shape) % {name: _message(value) for name, value in result.groupdict().items()}
    return _(sentence) if sentence else ""


def _value(value: object) -> object:
    """Returns a value of a message: a message itself, or text that may be a sentence of a broker."""
    if isinstance(value, Message):
        return localized(value)
    return _message(value) if isinstance(value, str) else value


def _message(value: str) -> str:
    """Translates a value if it is a sentence of ours; names are not changed."""
    is_ours = value in SENTENCES or any(pattern.fullmatch(value) for pattern, _shape in _patterns())
    return localized(value) if is_ours else value
