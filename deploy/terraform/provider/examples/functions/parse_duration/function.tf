output "seconds" {
  value = provider::gtm::parse_duration("1h30m") # 5400
}
