"""What tests lean on: embedded services and the whole product, each started once per session and only when asked for."""
