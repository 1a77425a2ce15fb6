"""Whom the plane asks: may this region serve it (gate), when (queueing), by which backend (picking)?"""
