"""Values that everything else is made of: no rule of any trade, no decision."""
