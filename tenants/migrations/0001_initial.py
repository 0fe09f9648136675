"""Users, tenants, members, invitations, tokens, audit entries and idempotency records."""

import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
import tenants.ids
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='User',
            fields=[
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('id', tenants.ids.TypedIdField('usr', 8, serialize=False)),
                ('email', models.EmailField(max_length=254, unique=True, verbose_name='e-mail')),
                ('name', models.CharField(blank=True, max_length=64, verbose_name='name')),
                ('language', models.CharField(choices=[('en', 'English'), ('zh-hans', '简体中文')], default='en', max_length=8, verbose_name='language')),
                ('time_zone', models.CharField(default='UTC', max_length=64, verbose_name='time zone')),
                ('theme', models.CharField(choices=[('system', 'Like the system'), ('light', 'Light'), ('dark', 'Dark')], default='system', max_length=8, verbose_name='theme')),
                ('is_staff', models.BooleanField(default=False, help_text='May open the operator panel.', verbose_name='operator')),
                ('is_active', models.BooleanField(default=True, verbose_name='active')),
                ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='joined')),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'verbose_name': 'user',
                'verbose_name_plural': 'users',
                'ordering': ('email',),
            },
        ),
        migrations.CreateModel(
            name='IdempotencyRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('actor_id', models.CharField(max_length=64)),
                ('tenant_id', models.CharField(blank=True, default='', max_length=32)),
                ('key', models.CharField(max_length=128)),
                ('fingerprint', models.CharField(max_length=64)),
                ('status', models.PositiveSmallIntegerField()),
                ('headers', models.JSONField(default=dict)),
                ('body', models.JSONField(null=True)),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                'verbose_name': 'idempotency record',
                'verbose_name_plural': 'idempotency records',
                'ordering': ('created_at', 'id'),
                'constraints': [models.UniqueConstraint(fields=('tenant_id', 'actor_id', 'key'), name='idempotency_key_once_per_actor')],
            },
        ),
        migrations.CreateModel(
            name='Tenant',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed')),
                ('version', models.PositiveIntegerField(default=1, editable=False, verbose_name='version')),
                ('id', tenants.ids.TypedIdField('ten', 8, serialize=False)),
                ('slug', models.SlugField(max_length=48, unique=True, verbose_name='short name')),
                ('name', models.CharField(max_length=64, verbose_name='name')),
                ('currency', models.CharField(default='EUR', max_length=3, verbose_name='currency')),
                ('status', models.CharField(choices=[('active', 'Active'), ('suspended', 'Suspended')], db_index=True, default='active', max_length=12, verbose_name='status')),
                ('suspension_reason', models.CharField(blank=True, choices=[('unpaid', 'Unpaid invoice'), ('abuse', 'Abuse'), ('requested', 'Asked for by the tenant')], default='', max_length=12, verbose_name='suspended because')),
            ],
            options={
                'verbose_name': 'tenant',
                'verbose_name_plural': 'tenants',
                'ordering': ('name', 'id'),
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('status', 'active'), ('suspension_reason', '')), models.Q(('status', 'suspended'), models.Q(('suspension_reason', ''), _negated=True)), _connector='OR'), name='tenant_suspended_with_reason'), models.CheckConstraint(condition=models.Q(('currency__regex', '^[A-Z]{3}$')), name='tenant_currency_code')],
            },
        ),
        migrations.CreateModel(
            name='Member',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed')),
                ('version', models.PositiveIntegerField(default=1, editable=False, verbose_name='version')),
                ('id', tenants.ids.TypedIdField('mem', 8, serialize=False)),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('developer', 'Developer'), ('finance', 'Finance'), ('viewer', 'Viewer')], max_length=12, verbose_name='role')),
                ('removed_at', models.DateTimeField(blank=True, null=True, verbose_name='removed')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='memberships', to=settings.AUTH_USER_MODEL, verbose_name='user')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='members', to='tenants.tenant', verbose_name='tenant')),
            ],
            options={
                'verbose_name': 'member',
                'verbose_name_plural': 'members',
                'ordering': ('created_at', 'id'),
            },
        ),
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed')),
                ('version', models.PositiveIntegerField(default=1, editable=False, verbose_name='version')),
                ('id', tenants.ids.TypedIdField('inv', 8, serialize=False)),
                ('email', models.EmailField(max_length=254, verbose_name='e-mail')),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('developer', 'Developer'), ('finance', 'Finance'), ('viewer', 'Viewer')], max_length=12, verbose_name='role')),
                ('secret_hash', models.CharField(editable=False, max_length=64, unique=True)),
                ('expires_at', models.DateTimeField(verbose_name='expires')),
                ('accepted_at', models.DateTimeField(blank=True, null=True, verbose_name='accepted')),
                ('revoked_at', models.DateTimeField(blank=True, null=True, verbose_name='revoked')),
                ('invited_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.member', verbose_name='invited by')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='invitations', to='tenants.tenant', verbose_name='tenant')),
            ],
            options={
                'verbose_name': 'invitation',
                'verbose_name_plural': 'invitations',
                'ordering': ('-created_at', 'id'),
            },
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', tenants.ids.TypedIdField('aud', 16, serialize=False)),
                ('time', models.DateTimeField(default=django.utils.timezone.now, verbose_name='time')),
                ('actor_kind', models.CharField(choices=[('user', 'User'), ('token', 'API token'), ('operator', 'Operator'), ('system', 'System')], max_length=8, verbose_name='kind of actor')),
                ('actor_id', models.CharField(max_length=64, verbose_name='actor')),
                ('actor_label', models.CharField(max_length=254, verbose_name='actor name')),
                ('action', models.CharField(max_length=64, verbose_name='action')),
                ('target_type', models.CharField(max_length=32, verbose_name='kind of target')),
                ('target_id', models.CharField(max_length=300, verbose_name='target')),
                ('before', models.JSONField(blank=True, null=True, verbose_name='before')),
                ('after', models.JSONField(blank=True, null=True, verbose_name='after')),
                ('request_id', models.CharField(blank=True, default='', max_length=64, verbose_name='request id')),
                ('ip', models.GenericIPAddressField(blank=True, null=True, verbose_name='IP address')),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='audit_entries', to='tenants.tenant', verbose_name='tenant')),
            ],
            options={
                'verbose_name': 'audit entry',
                'verbose_name_plural': 'audit log',
                'ordering': ('-time', '-id'),
            },
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', tenants.ids.TypedIdField('tok', 8, serialize=False)),
                ('name', models.CharField(max_length=64, verbose_name='name')),
                ('prefix', models.CharField(editable=False, max_length=12, verbose_name='starts with')),
                ('secret_hash', models.CharField(editable=False, max_length=64, unique=True)),
                ('scopes', models.JSONField(default=list, verbose_name='scopes')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('expires_at', models.DateTimeField(blank=True, null=True, verbose_name='expires')),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='last used')),
                ('revoked_at', models.DateTimeField(blank=True, null=True, verbose_name='revoked')),
                ('member', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='tokens', to='tenants.member', verbose_name='made by')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='tokens', to='tenants.tenant', verbose_name='tenant')),
            ],
            options={
                'verbose_name': 'API token',
                'verbose_name_plural': 'API tokens',
                'ordering': ('-created_at', 'id'),
            },
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('email'), name='user_email_once_in_any_case'),
        ),
        migrations.AddConstraint(
            model_name='member',
            constraint=models.UniqueConstraint(condition=models.Q(('removed_at', None)), fields=('tenant', 'user'), name='member_once_per_tenant'),
        ),
        migrations.AddConstraint(
            model_name='member',
            constraint=models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'admin', 'developer', 'finance', 'viewer'])), name='member_role_known'),
        ),
        migrations.AddConstraint(
            model_name='invitation',
            constraint=models.UniqueConstraint(condition=models.Q(('accepted_at', None), ('revoked_at', None)), fields=('tenant', 'email'), name='invitation_open_once'),
        ),
        migrations.AddConstraint(
            model_name='invitation',
            constraint=models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'admin', 'developer', 'finance', 'viewer'])), name='invitation_role_known'),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['tenant', '-time', '-id'], name='audit_by_tenant_and_time'),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['target_id', '-time'], name='audit_by_target'),
        ),
    ]
