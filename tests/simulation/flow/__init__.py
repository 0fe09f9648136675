"""The flow master and brokers at random: reports and answers late and lost, masters and brokers that die."""
