"""What happened: recorded files become traces, steps and transitions, and every record and step is accounted for."""
