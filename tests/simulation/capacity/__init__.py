"""Storage of instances at random: writers of any speed, lost reports, brokers and controllers that come and go."""
