"""Does an agent do better with us? Forty tasks over several sessions, one file for each arm."""
