"""Who talks to whom when there is no server: the peers' groups. Needs nothing but integers and a
generator."""
