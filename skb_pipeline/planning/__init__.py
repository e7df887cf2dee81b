"""Query plans: schema, validation and the engines that write them."""
