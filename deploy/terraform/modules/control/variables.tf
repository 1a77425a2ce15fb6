# The database

variable "database_url_file" {
  description = "A file on the machine with the database's URL alone (`postgresql://…`), put there by the platform's secret store."
  type        = string
  default     = null
  validation {
    condition     = var.database_url_file == null ? true : startswith(var.database_url_file, "/")
    error_message = "database_url_file is a path on the machine, which begins with `/`; the URL itself belongs in `database_url`."
  }
}

variable "database_url_command" {
  description = "A command that prints the database's URL, run by root on the machine: `gcloud secrets versions access latest --secret gtm-database`."
  type        = string
  default     = null
  validation {
    condition     = var.database_url_command == null ? true : trimspace(var.database_url_command) != "" && !strcontains(var.database_url_command, "\n")
    error_message = "database_url_command is one line for a shell, or null; put several lines into a program on the machine's image."
  }
}

variable "database_url" {
  description = "The database's URL itself. It is then in user data and in Terraform's state, for all who read these."
  type        = string
  default     = null
  sensitive   = true
  validation {
    condition     = var.database_url == null ? true : can(regex("^postgres(ql)?://[^\\s']+$", var.database_url))
    error_message = "database_url is postgresql://USER:PASSWORD@HOST/DATABASE, with special characters of the password as %XX."
  }
}

variable "database_ca" {
  description = "Certificates (PEM) that the database's is checked against, with its name; null: as the URL says (`sslmode`)."
  type        = string
  default     = null
  validation {
    condition     = var.database_ca == null ? true : strcontains(var.database_ca, "-----BEGIN CERTIFICATE-----")
    error_message = "database_ca holds no certificate: give its text in PEM, as by file(\"rds.pem\"), not its path."
  }
}

variable "migrate" {
  description = "Whether control brings the database's schema to its version when it starts, and the set-up makes the first admin token. false: you run `gtm db upgrade` and `gtm token create` yourself."
  type        = bool
  default     = true
}

variable "admin_token" {
  description = "The first admin token, made where the database has none: its name, its owner, the file that it is put into (root alone reads it), and a command that gets it on standard input instead; the file is then deleted."
  type        = map(string)
  default     = {}
  validation {
    condition     = length(setsubtract(try(keys(var.admin_token), []), ["name", "owner", "file", "command"])) == 0
    error_message = "admin_token: there is no field `${join("`, `", setsubtract(try(keys(var.admin_token), []), ["name", "owner", "file", "command"]))}`; the fields are `name`, `owner`, `file` and `command`."
  }
  validation {
    condition     = startswith(coalesce(try(var.admin_token.file, null), "/"), "/") && alltrue([for name in ["name", "owner", "file"] : lookup(var.admin_token, name, "-") != ""])
    error_message = "admin_token has a name, an owner, and a file whose path begins with `/`; leave out what is to be as usual."
  }
}

# Where it is reached

variable "addresses" {
  description = "Addresses that control listens on, in plain HTTP: leave loopback where a proxy on this machine speaks TLS, and name a private address behind a load balancer."
  type        = list(string)
  default     = ["127.0.0.1"]
  validation {
    condition     = length(var.addresses) > 0 && alltrue([for one in var.addresses : can(cidrhost("${one}/0", 0))])
    error_message = "addresses takes literal IPv4 and IPv6 addresses, without ports, and at least one: [\"127.0.0.1\"]."
  }
}

variable "port" {
  description = "Its port."
  type        = number
  default     = 8080
  validation {
    condition     = var.port >= 1 && var.port <= 65535 && floor(var.port) == var.port
    error_message = "port is a port, from 1 to 65535."
  }
}

variable "dashboard_url" {
  description = "Where people find the dashboard behind the proxy that speaks TLS: `https://gtm.example.com`."
  type        = string
  default     = null
  validation {
    condition     = var.dashboard_url == null ? true : can(regex("^https?://[^\\s'?#/]+/?$", var.dashboard_url))
    error_message = "dashboard_url is the address of a host without a path, such as https://gtm.example.com."
  }
}

# Secrets and people

variable "dnssec_key" {
  description = "What DNSSEC keys are encrypted with in the database, 32 bytes in base64, in a `file` on the machine or printed by a `command`. Several controls need the same; null: one is made in /var/lib/gtm-control."
  type        = map(string)
  default     = null
  validation {
    condition     = length(setsubtract(try(keys(var.dnssec_key), []), ["file", "command"])) == 0
    error_message = "dnssec_key: there is no field `${join("`, `", setsubtract(try(keys(var.dnssec_key), []), ["file", "command"]))}`; the fields are `file` and `command`."
  }
  validation {
    condition     = var.dnssec_key == null ? true : (try(var.dnssec_key.file, null) == null) != (try(var.dnssec_key.command, null) == null)
    error_message = "dnssec_key has one of `file` and `command`; `openssl rand -base64 32` makes a key."
  }
}

variable "oidc" {
  description = "An OpenID Connect provider by which people sign in at the dashboard; roles as [\"admin=group:gtm-admins\"]."
  type        = any
  default     = null
  validation {
    condition     = length(setsubtract(try(keys(var.oidc), []), ["issuer", "client_id", "roles"])) == 0
    error_message = "oidc: there is no field `${join("`, `", setsubtract(try(keys(var.oidc), []), ["issuer", "client_id", "roles"]))}`; the fields are `issuer`, `client_id` and `roles`."
  }
  validation {
    condition     = var.oidc == null ? true : try(startswith(var.oidc.issuer, "https://") && var.oidc.client_id != "" && length(var.oidc.roles) > 0, false)
    error_message = "oidc.issuer is an https URL, oidc.client_id the name that the provider knows gtm by, and oidc.roles says at least one role: [\"viewer=group:staff\"]."
  }
}

variable "oidc_client_secret" {
  description = "The secret that goes with `oidc.client_id`, in a `file` on the machine or printed by a `command`; null: a public client."
  type        = map(string)
  default     = null
  validation {
    condition     = length(setsubtract(try(keys(var.oidc_client_secret), []), ["file", "command"])) == 0
    error_message = "oidc_client_secret: there is no field `${join("`, `", setsubtract(try(keys(var.oidc_client_secret), []), ["file", "command"]))}`; the fields are `file` and `command`."
  }
  validation {
    condition     = var.oidc_client_secret == null ? true : (try(var.oidc_client_secret.file, null) == null) != (try(var.oidc_client_secret.command, null) == null)
    error_message = "oidc_client_secret has one of `file` and `command`."
  }
}

# Where clients are

variable "geoip_db" {
  description = "A GeoIP database (MMDB): a `path` on the machine, kept fresh by the platform, or a `url`, with its `sha256` or without; null: the shipped one."
  type        = map(string)
  default     = null
  validation {
    condition     = length(setsubtract(try(keys(var.geoip_db), []), ["path", "url", "sha256"])) == 0
    error_message = "geoip_db: there is no field `${join("`, `", setsubtract(try(keys(var.geoip_db), []), ["path", "url", "sha256"]))}`; the fields are `path`, `url` and `sha256`."
  }
  validation {
    condition     = var.geoip_db == null ? true : (try(var.geoip_db.path, null) == null) != (try(var.geoip_db.url, null) == null)
    error_message = "geoip_db has one of `path` and `url`."
  }
  validation {
    condition     = try(var.geoip_db.url, null) == null ? true : can(regex("^(https|file)://[^\\s]+$", var.geoip_db.url))
    error_message = "geoip_db.url is an https or file URL."
  }
  validation {
    condition     = try(var.geoip_db.sha256, null) == null ? true : can(regex("^[0-9a-f]{64}$", var.geoip_db.sha256))
    error_message = "geoip_db.sha256 is 64 hexadecimal digits in small letters, as sha256sum prints them."
  }
}

variable "geoip_overrides" {
  description = "Locations of your own networks, the text of a YAML file."
  type        = string
  default     = null
  validation {
    condition     = var.geoip_overrides == null ? true : can(yamldecode(var.geoip_overrides))
    error_message = "geoip_overrides is not YAML: give a file's text, as by file(\"overrides.yaml\")."
  }
}

# How it is installed

variable "package" {
  description = "Where gtm comes from: a `version` of the package index, with the wheel's `sha256` or without, or a wheel's `url` with its `sha256`. What gtm needs is installed as the wheel's lock has it, each file by its hash."
  type        = map(string)
  validation {
    condition     = length(setsubtract(try(keys(var.package), []), ["version", "url", "sha256"])) == 0
    error_message = "package: there is no field `${join("`, `", setsubtract(try(keys(var.package), []), ["version", "url", "sha256"]))}`; the fields are `version`, `url` and `sha256`."
  }
  validation {
    condition     = (try(var.package.version, null) == null) != (try(var.package.url, null) == null)
    error_message = "package has a version, { version = \"0.1.0\" }, or a wheel's address, { url = \"https://…/gtm_service-0.1.0-py3-none-any.whl\", sha256 = \"…\" }: one of the two."
  }
  validation {
    condition     = try(var.package.version, null) == null ? true : can(regex("^[0-9][0-9A-Za-z.!+]*$", var.package.version))
    error_message = "package.version is one version, such as 0.1.0: each machine is to have the one that was tried."
  }
  validation {
    condition     = try(var.package.sha256, null) == null ? true : can(regex("^[0-9a-f]{64}$", var.package.sha256))
    error_message = "package.sha256 is 64 hexadecimal digits in small letters, as sha256sum prints them."
  }
  validation {
    condition     = try(var.package.url, null) == null ? true : can(regex("^(https|file)://[^\\s'#]+[.]whl$", var.package.url)) && can(regex("^[0-9a-f]{64}$", var.package.sha256))
    error_message = "package.url is the https or file URL of a wheel (.whl), and package.sha256 what sha256sum prints for it, 64 hexadecimal digits."
  }
}

variable "python" {
  description = "A Python of 3.11 or newer on the machine, a path; null: the newest that is found, or the system's packages bring."
  type        = string
  default     = null
}

variable "pip_arguments" {
  description = "Further arguments of `pip install`, as [\"--index-url\", \"https://pypi.internal/simple\"]."
  type        = list(string)
  default     = []
}

variable "install_packages" {
  description = "Whether the system's packages (apt, dnf) may bring a Python where none is."
  type        = bool
  default     = true
}

variable "environment" {
  description = "Further settings of gtm, by the names of their variables (docs/operations.md); they win."
  type        = map(string)
  default     = {}
  validation {
    condition     = alltrue([for name, value in var.environment : can(regex("^[A-Z][A-Z0-9_]*$", name)) && !can(regex("['\\n\\r]", value))])
    error_message = "environment has names such as GTM_LOG_LEVEL, and values of one line without single quotes."
  }
  validation {
    condition     = length(setintersection(keys(var.environment), ["GTM_TOKEN", "GTM_DATABASE_URL", "GTM_OIDC_CLIENT_SECRET"])) == 0
    error_message = "environment is readable by all on the machine; secrets have inputs of their own (token_file, database_url_file, oidc_client_secret and others)."
  }
}

variable "unit_settings" {
  description = "Further lines of the unit's [Service] section, which win: [\"MemoryMax=2G\"]."
  type        = list(string)
  default     = []
  validation {
    condition     = alltrue([for one in var.unit_settings : can(regex("^[A-Za-z]+=[^\\n]*$", one))])
    error_message = "unit_settings are lines such as \"MemoryMax=2G\" (systemd.exec(5), systemd.resource-control(5))."
  }
}

variable "start_timeout" {
  description = "Seconds that the set-up waits for the service to be ready before it says that it is not."
  type        = number
  default     = 120
  validation {
    condition     = var.start_timeout >= 1 && floor(var.start_timeout) == var.start_timeout
    error_message = "start_timeout is a whole number of seconds, 1 or more."
  }
}
