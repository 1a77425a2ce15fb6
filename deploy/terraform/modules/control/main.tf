locals {
  folder    = "control"
  config    = "/etc/gtm/${local.folder}"
  program   = "/opt/gtm/${local.folder}/current/bin/gtm"
  state     = "gtm-control"
  geoip_url = try(var.geoip_db.url, null)
  geoip_db  = local.geoip_url == null ? try(var.geoip_db.path, null) : "/opt/gtm/${local.folder}/geoip.mmdb"
  key_file  = "${local.config}.dnssec-key"
  low_port  = var.port < 1024

  settings = merge({ for name, value in {
    GTM_DATA_DIR        = "/var/lib/${local.state}"
    GTM_BIND            = join(",", var.addresses)
    GTM_CONTROL_PORT    = tostring(var.port)
    GTM_DASHBOARD_URL   = var.dashboard_url
    GTM_DNSSEC_KEY_FILE = var.dnssec_key == null ? null : local.key_file
    GTM_OIDC_ISSUER     = try(var.oidc.issuer, null)
    GTM_OIDC_CLIENT_ID  = try(var.oidc.client_id, null)
    GTM_OIDC_ROLES      = var.oidc == null ? null : join(",", var.oidc.roles)
    GTM_GEOIP_DB        = local.geoip_db
    GTM_GEOIP_OVERRIDES = var.geoip_overrides == null ? null : "${local.config}-overrides.yaml"
    PGSSLROOTCERT       = var.database_ca == null ? null : "${local.config}-database-ca.pem"
    PGSSLMODE           = var.database_ca == null ? null : "verify-full"
  } : name => value if value != null }, var.environment)

  given = nonsensitive(var.database_url != null)
  urls  = length([for one in [local.given ? "given" : null, var.database_url_file, var.database_url_command] : one if one != null])

  unit = <<-UNIT
    [Unit]
    Description=gtm control
    Wants=network-online.target
    After=network-online.target
    StartLimitIntervalSec=0

    [Service]
    Type=notify
    User=gtm
    Group=gtm
    EnvironmentFile=${local.config}.env
    # GTM_DATABASE_URL and other secrets, which root alone reads
    EnvironmentFile=${local.config}.secret.env
    ExecStart=${local.program} control${var.migrate ? "" : " --no-prepare"}
    Restart=always
    RestartSec=1
    # It waits for the database, and migrates it.
    TimeoutStartSec=infinity
    TimeoutStopSec=30
    LimitNOFILE=65536
    StateDirectory=${local.state}
    StateDirectoryMode=0700
    UMask=0077
    ${join("\n", concat(local.hardening, var.unit_settings))}

    [Install]
    WantedBy=multi-user.target
  UNIT

  hardening = [
    "AmbientCapabilities=${local.low_port ? "CAP_NET_BIND_SERVICE" : ""}",
    "CapabilityBoundingSet=${local.low_port ? "CAP_NET_BIND_SERVICE" : ""}",
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "LockPersonality=yes",
    "RemoveIPC=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
  ]

  # The first admin token is made here and not by control, which would print it into the journal.
  prepare = <<-SH
      first=${local.quoted.file}
      upgrade() { problem=$(as_service db upgrade 2>&1); }
      has_admin() {
        listed=$(as_service token list --direct --json) || return 1
        printf '%s' "$listed" |
          "$new/bin/python" -c 'import json, sys; sys.exit("admin" not in {one["role"] for one in json.load(sys.stdin)})'
      }
      until_true upgrade || fail "the database cannot be used: $problem"
      if ! has_admin; then
        if (umask 077 && as_service token create ${local.quoted.name} --role admin --owner ${local.quoted.owner} --direct > "$first.new"); then
          mv -f "$first.new" "$first"
          say "the first admin token is in $first"
        else
          rm -f "$first.new"
          has_admin || fail "could not make the first admin token (see above)"
        fi
      fi
  SH
  finish  = try(var.admin_token.command, null) == null ? ":" : <<-SH
      first=${local.quoted.file}
      if [ -e "$first" ]; then
        sh -c ${local.quoted.command} < "$first" || fail "control runs, but admin_token.command failed with the first admin token, which is still in $first: correct that, and run this again"
        rm -f "$first"
        say "the first admin token was handed to admin_token.command"
      fi
  SH
  quoted = { for name, text in {
    file    = coalesce(try(var.admin_token.file, null), "/root/gtm-admin-token")
    name    = coalesce(try(var.admin_token.name, null), "root")
    owner   = coalesce(try(var.admin_token.owner, null), "local-admin")
    command = try(var.admin_token.command, null)
  } : name => "'${replace(text == null ? "" : text, "'", "'\\''")}'" }
}

module "machine" {
  source = "../machine"

  service  = "gtm-control"
  folder   = local.folder
  unit     = local.unit
  settings = local.settings
  files = { for path, text in {
    "${local.config}-database-ca.pem" = var.database_ca
    "${local.config}-overrides.yaml"  = var.geoip_overrides
  } : path => text if text != null }
  downloads = local.geoip_url == null ? {} : { (local.geoip_db) = { url = local.geoip_url, sha256 = try(var.geoip_db.sha256, null) } }
  secrets = { for name, one in {
    GTM_DATABASE_URL       = local.given ? null : { file = var.database_url_file, command = var.database_url_command }
    GTM_OIDC_CLIENT_SECRET = var.oidc_client_secret
    (local.key_file)       = var.dnssec_key
  } : name => one if one != null }
  given       = local.given ? { GTM_DATABASE_URL = var.database_url } : {}
  given_names = local.given ? ["GTM_DATABASE_URL"] : []

  package          = var.package
  python           = var.python
  pip_arguments    = var.pip_arguments
  install_packages = var.install_packages
  listens          = [for one in var.addresses : "tcp/${one}:${var.port}"]
  on_change        = "restart"
  prepare          = var.migrate ? local.prepare : ":"
  finish           = local.finish
  start_timeout    = var.start_timeout
}
