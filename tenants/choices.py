"""Enumerations of this app: roles, scopes, states, kinds of actors."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.utils.translation import gettext_lazy as _


class TenantStatus(models.TextChoices):
    ACTIVE = "active", _("Active")
    SUSPENDED = "suspended", _("Suspended")


class SuspensionReason(models.TextChoices):
    """Reason of a suspension; writes answer 402 for an unpaid invoice and 403 otherwise."""

    UNPAID = "unpaid", _("Unpaid invoice")
    ABUSE = "abuse", _("Abuse")
    REQUESTED = "requested", _("Asked for by the tenant")
    OTHER = "other", _("Another reason")


class Role(models.TextChoices):
    """Role of a member in a tenant. `access.ROLE_SCOPES` has the permissions of each."""

    OWNER = "owner", _("Owner")
    ADMIN = "admin", _("Admin")
    DEVELOPER = "developer", _("Developer")
    FINANCE = "finance", _("Finance")
    VIEWER = "viewer", _("Viewer")


# Roles that the identity provider of a tenant may assign; none may assign owners.
SSO_ROLES = tuple((role.value, role.label) for role in Role if role is not Role.OWNER)


class Scope(models.TextChoices):
    """Permission: required by an endpoint, granted by a role, and restricted by a token's scopes."""

    TENANT_READ = "tenant:read", _("See the tenant and its limits")
    TENANT_WRITE = "tenant:write", _("Rename the tenant")
    MEMBERS_READ = "members:read", _("See members")
    MEMBERS_WRITE = "members:write", _("Invite, change and remove members")
    TOKENS_READ = "tokens:read", _("See API tokens")
    TOKENS_WRITE = "tokens:write", _("Create and revoke API tokens")
    AUDIT_READ = "audit:read", _("Read the audit log")
    INSTANCES_READ = "instances:read", _("See instances and their operations")
    INSTANCES_WRITE = "instances:write", _("Create, change and delete instances")
    TOPICS_READ = "topics:read", _("See topics")
    TOPICS_WRITE = "topics:write", _("Create, change and delete topics")
    MESSAGES_READ = "messages:read", _("Read messages")
    MESSAGES_WRITE = "messages:write", _("Send messages")
    MESSAGES_UNMASK = "messages:unmask", _("See masked fields of messages, and choose them")
    ARCHIVES_READ = "archives:read", _("See archives of topics")
    ARCHIVES_WRITE = "archives:write", _("Copy topics to Parquet files")
    USERS_READ = "users:read", _("See users of instances")
    USERS_WRITE = "users:write", _("Create, change and delete users of instances")
    ACLS_READ = "acls:read", _("See access rules")
    ACLS_WRITE = "acls:write", _("Change access rules")
    QUOTAS_READ = "quotas:read", _("See quotas")
    QUOTAS_WRITE = "quotas:write", _("Change quotas")
    GROUPS_READ = "groups:read", _("See consumer groups and transactions")
    GROUPS_WRITE = "groups:write", _("Reset offsets and delete groups")
    CLIENTS_READ = "clients:read", _("See connected clients")
    CLIENTS_WRITE = "clients:write", _("Close connections of clients")
    USAGE_READ = "usage:read", _("See usage and metrics")
    BILLING_READ = "billing:read", _("See invoices and cost")
    BILLING_WRITE = "billing:write", _("Set budgets and billing details")
    OPERATOR = "operator", _("Run the platform (operators only)")


class InvitationState(StrEnum):
    """State of an invitation."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REVOKED = "revoked"
    EXPIRED = "expired"


class ActorKind(models.TextChoices):
    """Kind of actor in the audit log."""

    USER = "user", _("User")
    TOKEN = "token", _("API token")
    OPERATOR = "operator", _("Operator")
    SYSTEM = "system", _("System")
    CLIENT = "client", _("Kafka client")


class Theme(models.TextChoices):
    SYSTEM = "system", _("Like the system")
    LIGHT = "light", _("Light")
    DARK = "dark", _("Dark")


class Language(models.TextChoices):
    ENGLISH = "en", "English"
    CHINESE = "zh-hans", "简体中文"
