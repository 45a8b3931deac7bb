"""How the system itself is doing: checks for people, readiness for load balancers, numbers for graphs."""
