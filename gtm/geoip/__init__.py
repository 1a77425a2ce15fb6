"""Where an address is: GeoIP databases and the operator's overrides. See docs/geoip.md."""
