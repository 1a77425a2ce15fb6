data "gtm_edges" "all" {}

output "silent" {
  value = [for one in data.gtm_edges.all.edges : one.name if !one.live]
}
