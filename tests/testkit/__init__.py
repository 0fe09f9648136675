"""What tests lean on: embedded services and the whole product, each started once a session, on first use."""
