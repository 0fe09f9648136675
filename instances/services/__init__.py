"""Writes of this app. Each is one transaction with an audit row, which names the actor `acting`."""

from instances.services.acls import create_acls, delete_acls, restore_acls
from instances.services.certificate_expiry import record_certificate_expiry
from instances.services.changing import configure_instance, protect_instance, rename_instance, resize_instance
from instances.services.clients import close_connection
from instances.services.closing import close_instance
from instances.services.common import bump_and_publish, lock_topic, lock_user
from instances.services.copies import REQUIRED_SCOPES as COPY_SCOPES
from instances.services.copies import cancel_copy, copy_topic, resume_copy, topic_copies, topic_copy
from instances.services.creating import create_instance, retry_instance
from instances.services.delays import delete_old_delays, store_delays
from instances.services.deleted_topics import (
    deleted_topics,
    purge_deleted_topic,
    purge_expired_topics,
    restore_period,
    restore_topic,
)
from instances.services.deleted_users import RESTORE_PERIOD as USER_RESTORE_PERIOD
from instances.services.deleted_users import (
    deleted_users,
    purge_deleted_user,
    purge_expired_users,
    restore_user,
)
from instances.services.deleting import (
    delete_instance,
    has_no_visible_topic,
    has_nothing_to_restore,
    purge_instance,
    restore_instance,
)
from instances.services.first_steps import TOPIC as QUICKSTART_TOPIC
from instances.services.first_steps import Push, Quickstart, push_limit, quickstart
from instances.services.group_common import group_ref, offsets_from_audit
from instances.services.groups import delete_group, delete_offsets, undo_offsets
from instances.services.growing import grow_storage
from instances.services.message_streams import MessageStream, open_stream
from instances.services.messages import MessagePage, ReadRequest, ShownMessage, read_messages, send_messages
from instances.services.oauth import configure_oauth, remove_oauth
from instances.services.observing import observed_conditions, record_health
from instances.services.offsets import Reset, plan_reset, reset_offsets
from instances.services.purging import Purge, plan_purge, purge_topic
from instances.services.route_certificates import (
    remove_certificate,
    remove_client_ca,
    remove_revocation_list,
    set_certificate,
    set_client_ca,
    set_revocation_list,
)
from instances.services.routes import create_route, delete_route, update_route
from instances.services.suspending import resume_instance, suspend_instance
from instances.services.throttled_minutes import (
    ThrottledMinuteReport,
    delete_old_throttled_minutes,
    store_throttled_minutes,
)
from instances.services.topic_schemas import (
    add_schema,
    delete_schema,
    is_masked,
    masks_of,
    require_unmasked,
    schemas_of,
    set_masks,
)
from instances.services.topics import (
    check_topic_config,
    clone_topic,
    create_topic,
    delete_topic,
    own_settings,
    set_allow_list,
    update_topic,
)
from instances.services.transactions import abort_transaction
from instances.services.users import add_secret, create_user, delete_user, remove_secret, update_user

__all__ = [
    "COPY_SCOPES",
    "QUICKSTART_TOPIC",
    "USER_RESTORE_PERIOD",
    "MessagePage",
    "MessageStream",
    "Purge",
    "Push",
    "Quickstart",
    "ReadRequest",
    "Reset",
    "ShownMessage",
    "ThrottledMinuteReport",
    "abort_transaction",
    "add_schema",
    "add_secret",
    "bump_and_publish",
    "cancel_copy",
    "check_topic_config",
    "clone_topic",
    "close_connection",
    "close_instance",
    "configure_instance",
    "configure_oauth",
    "copy_topic",
    "create_acls",
    "create_instance",
    "create_route",
    "create_topic",
    "create_user",
    "delete_acls",
    "delete_group",
    "delete_instance",
    "delete_offsets",
    "delete_old_delays",
    "delete_old_throttled_minutes",
    "delete_route",
    "delete_schema",
    "delete_topic",
    "delete_user",
    "deleted_topics",
    "deleted_users",
    "group_ref",
    "grow_storage",
    "has_no_visible_topic",
    "has_nothing_to_restore",
    "is_masked",
    "lock_topic",
    "lock_user",
    "masks_of",
    "observed_conditions",
    "offsets_from_audit",
    "open_stream",
    "own_settings",
    "plan_purge",
    "plan_reset",
    "protect_instance",
    "purge_deleted_topic",
    "purge_deleted_user",
    "purge_expired_topics",
    "purge_expired_users",
    "purge_instance",
    "purge_topic",
    "push_limit",
    "quickstart",
    "read_messages",
    "record_certificate_expiry",
    "record_health",
    "remove_certificate",
    "remove_client_ca",
    "remove_oauth",
    "remove_revocation_list",
    "remove_secret",
    "rename_instance",
    "require_unmasked",
    "reset_offsets",
    "resize_instance",
    "restore_acls",
    "restore_instance",
    "restore_period",
    "restore_topic",
    "restore_user",
    "resume_copy",
    "resume_instance",
    "retry_instance",
    "schemas_of",
    "send_messages",
    "set_allow_list",
    "set_certificate",
    "set_client_ca",
    "set_masks",
    "set_revocation_list",
    "store_delays",
    "store_throttled_minutes",
    "suspend_instance",
    "topic_copies",
    "topic_copy",
    "undo_offsets",
    "update_route",
    "update_topic",
    "update_user",
]
