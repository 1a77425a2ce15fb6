# Fails unless these edges have the revision in force within a minute.
data "gtm_revision" "now" {
  wait_for_sync = {
    edges   = ["fra-1", "dub-1"]
    timeout = "60s"
  }
}
