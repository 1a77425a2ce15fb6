locals {
  folder    = "edge"
  config    = "/etc/gtm/${local.folder}"
  program   = "/opt/gtm/${local.folder}/current/bin/gtm"
  fetch     = "/opt/gtm/${local.folder}/secrets"
  state     = "gtm-edge"
  geoip_url = try(var.geoip_db.url, null)
  geoip_db  = local.geoip_url == null ? try(var.geoip_db.path, null) : "/opt/gtm/${local.folder}/geoip.mmdb"
  cookies   = "${local.config}.dns-cookie-secret"

  settings = merge({ for name, value in {
    GTM_CONTROL_URL            = var.control_url
    GTM_INSECURE_CONTROL       = var.insecure_control ? "true" : null
    GTM_CA_FILE                = var.control_ca == null ? null : "${local.config}-ca.pem"
    GTM_DATA_DIR               = "/var/lib/${local.state}"
    GTM_EDGE_NAME              = var.name
    GTM_DNS_BIND               = join(",", var.dns_addresses)
    GTM_DNS_PORT               = tostring(var.dns_port)
    GTM_BIND                   = join(",", var.http_addresses)
    GTM_EDGE_PORT              = tostring(var.http_port)
    GTM_WORKERS                = tostring(var.workers)
    GTM_TRUSTED_PROXIES        = length(var.trusted_proxies) == 0 ? null : join(",", var.trusted_proxies)
    GTM_REGION                 = var.region
    GTM_EDGE_COUNTRY           = var.country
    GTM_EDGE_OPERATOR_COUNTRY  = var.operator_country
    GTM_DNS_COOKIE_SECRET_FILE = var.dns_cookie_secret == null ? null : local.cookies
    GTM_GEOIP_DB               = local.geoip_db
    GTM_GEOIP_OVERRIDES        = var.geoip_overrides == null ? null : "${local.config}-overrides.yaml"
    GTM_GEOIP_ANONYMOUS_DB     = var.geoip_anonymous_db
  } : name => value if value != null }, var.environment)

  given       = nonsensitive(var.token != null)
  tokens      = length([for one in [local.given ? "given" : null, var.token_file, var.token_command] : one if one != null])
  this_host   = can(regex("^http://(localhost|127\\.[0-9.]+|\\[::1\\])(:[0-9]+)?(/|$)", var.control_url))
  in_the_open = startswith(var.control_url, "http://") && !local.this_host && !var.insecure_control

  unit = <<-UNIT
    [Unit]
    Description=gtm edge
    Wants=network-online.target
    After=network-online.target
    StartLimitIntervalSec=0

    [Service]
    Type=notify
    NotifyAccess=all
    User=gtm
    Group=gtm
    EnvironmentFile=${local.config}.env
    # GTM_TOKEN, which root alone reads
    EnvironmentFile=${local.config}.secret.env
    ExecStart=${local.program} edge
    # What is new takes over without a query lost; the one that runs stays if it cannot.
    ExecReload=+${local.fetch}
    ExecReload=/bin/sh -c '${local.program} edge --replace &'
    ExecStop=${local.program} edge --stop
    # Workers outlive an agent that dies, and answer until the next one takes them over.
    KillMode=process
    OOMPolicy=continue
    Restart=always
    RestartSec=1
    # Without a last-good file an edge is not ready before it has reached control.
    TimeoutStartSec=infinity
    LimitNOFILE=65536
    # The last-good file is here: with it the edge answers after a restart without control.
    StateDirectory=${local.state}
    StateDirectoryMode=0700
    UMask=0077
    ${join("\n", concat(local.hardening, var.unit_settings))}

    [Install]
    WantedBy=multi-user.target
  UNIT

  hardening = [
    "AmbientCapabilities=CAP_NET_BIND_SERVICE",
    "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
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
}

module "machine" {
  source = "../machine"

  service  = "gtm-edge"
  folder   = local.folder
  unit     = local.unit
  settings = local.settings
  files = { for path, text in {
    "${local.config}-ca.pem"         = var.control_ca
    "${local.config}-overrides.yaml" = var.geoip_overrides
  } : path => text if text != null }
  downloads = local.geoip_url == null ? {} : { (local.geoip_db) = { url = local.geoip_url, sha256 = try(var.geoip_db.sha256, null) } }
  secrets = { for name, one in {
    GTM_TOKEN       = local.given ? null : { file = var.token_file, command = var.token_command }
    (local.cookies) = var.dns_cookie_secret
  } : name => one if one != null }
  given       = local.given ? { GTM_TOKEN = var.token } : {}
  given_names = local.given ? ["GTM_TOKEN"] : []

  package          = var.package
  python           = var.python
  pip_arguments    = var.pip_arguments
  install_packages = var.install_packages
  listens = concat(
    flatten([for one in var.dns_addresses : ["udp/${one}:${var.dns_port}", "tcp/${one}:${var.dns_port}"]]),
    [for one in var.http_addresses : "tcp/${one}:${var.http_port}"],
  )
  make_room     = var.systemd_resolved == "make-room"
  on_change     = "reload"
  start_timeout = var.start_timeout
}
