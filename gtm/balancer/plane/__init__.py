"""Connections and what goes on between them: parsed, carried, ended once, accounted for."""
