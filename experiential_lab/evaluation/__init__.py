"""What was simulated: desks and candidates play tasks, and every attempt ends in a record that says where it ran."""
