"""Who a peer is."""
