"""Models of alerts, webhooks, mails and fair queues belong to the app `notifications`; their tables stay."""

from django.db import migrations

from tenants.moved_models import moved_away


class Migration(migrations.Migration):
    dependencies = [("billing", "0033_archives_moved")]

    operations = [
        moved_away(
            "MailNotice", "AlertFiring", "AlertRule", "BudgetAlert", "WebhookDelivery", "WebhookEndpoint", "QueueTurn"
        )
    ]
