"""What zones hold: names, records of services, static records, signatures, and denials."""
