data "gtm_findings" "all" {}

check "nothing_that_is_probably_not_meant" {
  assert {
    condition     = length(data.gtm_findings.all.findings) == 0
    error_message = join("\n", [for one in data.gtm_findings.all.findings : "${one.path}: ${one.message}"])
  }
}
