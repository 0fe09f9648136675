"""Routes of this app under /api/v1/."""

from __future__ import annotations

from django.urls import path

from instances.api import (
    acls,
    clients,
    deleted_topics,
    groups,
    instances,
    messages,
    oauth,
    prometheus,
    purges,
    quickstart,
    route_certificates,
    routes,
    storage,
    topic_clients,
    topics,
    users,
    watching,
)
from instances.limits import REVOCATION_LIST
from tenants.api.addresses import NAME

urlpatterns = [
    path("instances", instances.InstanceCollection.as_view()),
    path("instances/<str:instance_id>", instances.InstanceResource.as_view()),
    path("instances/<str:instance_id>/restore", instances.InstanceRestore.as_view()),
    path("instances/<str:instance_id>/purge", instances.InstancePurge.as_view()),
    path("instances/<str:instance_id>/resume", instances.InstanceResume.as_view()),
    path("instances/<str:instance_id>/retry", instances.InstanceRetry.as_view()),
    path("instances/<str:instance_id>/routes", routes.RouteCollection.as_view()),
    path("instances/<str:instance_id>/routes/<str:name>", routes.RouteResource.as_view()),
    path(
        "instances/<str:instance_id>/routes/<str:name>/client-ca",
        route_certificates.RouteClientCa.as_view(),
    ),
    path(
        f"instances/<str:instance_id>/routes/<str:name>/{REVOCATION_LIST}",
        route_certificates.RouteRevocationList.as_view(),
    ),
    path(
        "instances/<str:instance_id>/routes/<str:name>/certificate",
        route_certificates.RouteCertificate.as_view(),
    ),
    path("instances/<str:instance_id>/topics", topics.TopicCollection.as_view()),
    path(f"instances/<str:instance_id>/topics/<{NAME}:name>/messages", messages.MessageCollection.as_view()),
    path(f"instances/<str:instance_id>/topics/<{NAME}:name>/producers", topic_clients.ProducerCollection.as_view()),
    path(f"instances/<str:instance_id>/topics/<{NAME}:name>/consumers", topic_clients.ConsumerCollection.as_view()),
    path(f"instances/<str:instance_id>/topics/<{NAME}:name>/restore", deleted_topics.TopicRestore.as_view()),
    path("instances/<str:instance_id>/deleted-topics", deleted_topics.DeletedTopicCollection.as_view()),
    path(f"instances/<str:instance_id>/deleted-topics/<{NAME}:name>", deleted_topics.DeletedTopicResource.as_view()),
    path(f"instances/<str:instance_id>/topics/<{NAME}:name>/clone", topics.TopicClone.as_view()),
    path(f"instances/<str:instance_id>/topics/<{NAME}:name>/purge", purges.TopicPurge.as_view()),
    path(f"instances/<str:instance_id>/topics/<{NAME}:name>", topics.TopicResource.as_view()),
    path("instances/<str:instance_id>/groups", groups.GroupCollection.as_view()),
    path(f"instances/<str:instance_id>/groups/<{NAME}:group>/offsets", groups.GroupOffsets.as_view()),
    path(f"instances/<str:instance_id>/groups/<{NAME}:group>", groups.GroupResource.as_view()),
    path("instances/<str:instance_id>/transactions", groups.TransactionCollection.as_view()),
    path(
        f"instances/<str:instance_id>/transactions/<{NAME}:transactional_id>/abort", groups.TransactionAbort.as_view()
    ),
    path(f"instances/<str:instance_id>/transactions/<{NAME}:transactional_id>", groups.TransactionResource.as_view()),
    path("instances/<str:instance_id>/clients", clients.ClientCollection.as_view()),
    path("instances/<str:instance_id>/clients/<str:connection_id>", clients.ClientResource.as_view()),
    path("instances/<str:instance_id>/quickstart", quickstart.Quickstart.as_view()),
    path("instances/<str:instance_id>/push", quickstart.PushLimit.as_view()),
    path("instances/<str:instance_id>/users", users.UserCollection.as_view()),
    path(f"instances/<str:instance_id>/users/<{NAME}:name>/secrets", users.SecretCollection.as_view()),
    path(f"instances/<str:instance_id>/users/<{NAME}:name>/secrets/<str:secret_id>", users.SecretResource.as_view()),
    path(f"instances/<str:instance_id>/users/<{NAME}:name>", users.UserResource.as_view()),
    path("instances/<str:instance_id>/acls", acls.AclCollection.as_view()),
    path("instances/<str:instance_id>/acls/test", acls.AccessTest.as_view()),
    path("instances/<str:instance_id>/oauth", oauth.OAuthResource.as_view()),
    path("instances/<str:instance_id>/throughput", watching.Throughput.as_view()),
    path("instances/<str:instance_id>/throttles", watching.Throttles.as_view()),
    path("instances/<str:instance_id>/metrics", watching.Metrics.as_view()),
    path("instances/<str:instance_id>/metrics/prometheus", prometheus.PrometheusMetrics.as_view()),
    path("instances/<str:instance_id>/storage", storage.Storage.as_view()),
    path("instances/<str:instance_id>/storage/topics", storage.StorageTopics.as_view()),
    path("instances/<str:instance_id>/events", watching.Events.as_view()),
    path("operations", instances.OperationCollection.as_view()),
    path("operations/<str:operation_id>", instances.OperationResource.as_view()),
]
