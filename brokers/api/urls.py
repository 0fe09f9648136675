"""Routes of this app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from brokers.api import certificates, clusters, fleet_operations, hosts, rebalances, rolling, transactions, views

urlpatterns = [
    path("ca.pem", certificates.ca_certificate),
    path("operator/clusters", clusters.ClusterCollection.as_view()),
    path("operator/clusters/<str:cluster_id>", clusters.ClusterResource.as_view()),
    path("operator/clusters/<str:cluster_id>/partitions", clusters.ClusterPartitions.as_view()),
    path("operator/clusters/<str:cluster_id>/transactions/overdue", transactions.OverdueTransactions.as_view()),
    path("operator/clusters/<str:cluster_id>/transactions/orphans", transactions.OrphanTransactions.as_view()),
    path("operator/clusters/<str:cluster_id>/transactions/abort", transactions.TransactionAbort.as_view()),
    path("operator/operations", fleet_operations.FleetOperationCollection.as_view()),
    path("operator/operations/<str:operation_id>", fleet_operations.FleetOperationResource.as_view()),
    path("operator/hosts", hosts.HostCollection.as_view()),
    path("operator/hosts/<str:host_id>", hosts.HostResource.as_view()),
    path("operator/brokers", views.BrokerCollection.as_view()),
    path("operator/brokers/<str:broker_id>", views.BrokerResource.as_view()),
    path("operator/brokers/<str:broker_id>/restart", views.BrokerRestart.as_view()),
    path("operator/brokers/<str:broker_id>/start", views.BrokerStart.as_view()),
    path("operator/brokers/<str:broker_id>/drain", rebalances.BrokerDrain.as_view()),
    path("operator/placements", views.PlacementCollection.as_view()),
    path("operator/rebalances", rebalances.RebalanceCollection.as_view()),
    path("operator/rebalances/<str:rebalance_id>", rebalances.RebalanceResource.as_view()),
    path("operator/rebalances/<str:rebalance_id>/moves", rebalances.RebalanceReassignments.as_view()),
    path("operator/rebalances/<str:rebalance_id>/start", rebalances.RebalanceStart.as_view()),
    path("operator/rebalances/<str:rebalance_id>/pause", rebalances.RebalancePause.as_view()),
    path("operator/rebalances/<str:rebalance_id>/resume", rebalances.RebalanceResume.as_view()),
    path("operator/rebalances/<str:rebalance_id>/undo", rebalances.RebalanceUndo.as_view()),
    path("operator/rebalances/<str:rebalance_id>/abandon", rebalances.RebalanceAbandon.as_view()),
    path("operator/rebalances/<str:rebalance_id>/discard", rebalances.RebalanceDiscard.as_view()),
    path("operator/rolling_restarts", rolling.RollingRestartCollection.as_view()),
    path("operator/rolling_restarts/<str:restart_id>", rolling.RollingRestartResource.as_view()),
    path("operator/rolling_restarts/<str:restart_id>/pause", rolling.RollingRestartPause.as_view()),
    path("operator/rolling_restarts/<str:restart_id>/resume", rolling.RollingRestartResume.as_view()),
    path("operator/rolling_restarts/<str:restart_id>/cancel", rolling.RollingRestartCancel.as_view()),
]
