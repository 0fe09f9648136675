"""Models of archives belong to the app `archives`; their tables stay."""

from django.db import migrations

from tenants.moved_models import moved_away


class Migration(migrations.Migration):
    dependencies = [("billing", "0032_archives_in_databases")]

    operations = [moved_away("ArchiveFile", "ArchivePartition", "Archive")]
