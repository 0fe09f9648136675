"""Console pages of instances and topics."""

from __future__ import annotations

from django.urls import path, re_path

from instances.views import (
    acls,
    changing,
    clients,
    groups,
    listing,
    messages,
    offsets,
    overview,
    palette,
    quickstart,
    quotas,
    routes,
    selected_topics,
    storage,
    tokens,
    topic_purge,
    topic_settings,
    topics,
    transactions,
    users,
)

TOPIC = r"^instances/(?P<instance_id>ins-[a-z0-9]+)/topics/t/(?P<name>[A-Za-z0-9._-]{1,249})/"

palette.register()

urlpatterns = [
    path("instances/", listing.instances_page, name="page-instances"),
    path("operations/", listing.operations_part, name="page-operations"),
    path("instances/<str:instance_id>/", overview.overview, name="page-instance"),
    path("instances/<str:instance_id>/quickstart/", quickstart.quickstart_page, name="page-quickstart"),
    path("instances/<str:instance_id>/push/", quickstart.push_limit, name="page-push-limit"),
    path("instances/<str:instance_id>/traffic.json", overview.traffic, name="page-traffic"),
    path("instances/<str:instance_id>/why/", overview.why_part, name="page-why"),
    path("instances/<str:instance_id>/bandwidth/", overview.bandwidth_part, name="page-bandwidth"),
    path("instances/<str:instance_id>/heaviest/", overview.topics_part, name="page-topics-part"),
    path("instances/<str:instance_id>/behind/", groups.groups_part, name="page-groups-part"),
    path("instances/<str:instance_id>/throttle/", overview.throttle_page, name="page-throttle"),
    path("instances/<str:instance_id>/operations/<str:operation_id>/", changing.steps_part, name="page-steps"),
    path("instances/<str:instance_id>/quotas/", quotas.quotas_page, name="page-quotas"),
    path("instances/<str:instance_id>/quotas/delete/", quotas.delete_quota, name="page-quota-delete"),
    path("instances/<str:instance_id>/quotas/addresses/", quotas.addresses_page, name="page-address-quotas"),
    path(
        "instances/<str:instance_id>/quotas/addresses/delete/",
        quotas.delete_address_quota,
        name="page-address-quota-delete",
    ),
    path("instances/<str:instance_id>/groups/", groups.groups_page, name="page-groups"),
    path("instances/<str:instance_id>/groups/one/", groups.group_page, name="page-group"),
    path("instances/<str:instance_id>/groups/reset/", offsets.reset_page, name="page-group-reset"),
    path("instances/<str:instance_id>/groups/undo/", offsets.undo, name="page-group-undo"),
    path("instances/<str:instance_id>/groups/delete/", offsets.delete_page, name="page-group-delete"),
    path("instances/<str:instance_id>/transactions/", transactions.transactions_page, name="page-transactions"),
    path("instances/<str:instance_id>/transactions/one/", transactions.transaction_page, name="page-transaction"),
    path("instances/<str:instance_id>/clients/", clients.clients_page, name="page-clients"),
    path(
        "instances/<str:instance_id>/clients/<slug:connection_id>/close/", clients.close_page, name="page-client-close"
    ),
    path(
        "instances/<str:instance_id>/transactions/abort/", transactions.abort_transaction, name="page-transaction-abort"
    ),
    path("instances/<str:instance_id>/users/", users.users_page, name="page-users"),
    path("instances/<str:instance_id>/users/names/", users.names_part, name="page-user-names"),
    path("instances/<str:instance_id>/users/tokens/", tokens.tokens_page, name="page-oauth"),
    path("instances/<str:instance_id>/users/one/", users.user_page, name="page-user"),
    path("instances/<str:instance_id>/users/enable/", users.enable_user, name="page-user-enable"),
    path("instances/<str:instance_id>/users/delete/", users.delete_page, name="page-user-delete"),
    path("instances/<str:instance_id>/access/", acls.acls_page, name="page-acls"),
    path("instances/<str:instance_id>/access/delete/", acls.delete_rule, name="page-acl-delete"),
    path("instances/<str:instance_id>/access/undo/", acls.undo, name="page-acl-undo"),
    path("instances/<str:instance_id>/routes/", routes.routes_page, name="page-routes"),
    path("instances/<str:instance_id>/routes/<slug:name>/", routes.route_page, name="page-route"),
    path("instances/<str:instance_id>/routes/<slug:name>/delete/", routes.delete_page, name="page-route-delete"),
    path("instances/<str:instance_id>/storage/", storage.storage_page, name="page-storage"),
    path("instances/<str:instance_id>/settings/", changing.settings_page, name="page-instance-settings"),
    path("instances/<str:instance_id>/delete/", changing.delete_page, name="page-instance-delete"),
    path("instances/<str:instance_id>/restore/", changing.restore, name="page-instance-restore"),
    path("instances/<str:instance_id>/purge/", changing.purge_page, name="page-instance-purge"),
    path("instances/<str:instance_id>/close/", changing.close, name="page-instance-close"),
    path("instances/<str:instance_id>/resume/", changing.resume, name="page-instance-resume"),
    path("instances/<str:instance_id>/retry/", changing.retry, name="page-instance-retry"),
    path("instances/<str:instance_id>/topics/", topics.topics_page, name="page-topics"),
    path("instances/<str:instance_id>/topics/selected/", selected_topics.selected_page, name="page-topics-selected"),
    path("instances/<str:instance_id>/topics/create/", topics.create_page, name="page-topic-create"),
    path("instances/<str:instance_id>/topics/sample/", topics.sample_topic, name="page-topic-sample"),
    re_path(f"{TOPIC}$", messages.topic_page, name="page-topic"),
    re_path(f"{TOPIC}messages.jsonl$", messages.messages_file, name="page-topic-messages-file"),
    re_path(f"{TOPIC}send/$", messages.send_page, name="page-topic-send"),
    re_path(f"{TOPIC}partitions/$", topics.partitions_page, name="page-topic-partitions"),
    re_path(f"{TOPIC}config/$", topic_settings.settings_page, name="page-topic-config"),
    re_path(f"{TOPIC}access/$", topics.access_page, name="page-topic-access"),
    re_path(f"{TOPIC}clone/$", topics.clone_page, name="page-topic-clone"),
    re_path(f"{TOPIC}purge/$", topic_purge.purge_page, name="page-topic-purge"),
    re_path(f"{TOPIC}delete/$", topics.delete_page, name="page-topic-delete"),
]
