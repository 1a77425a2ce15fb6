# Where control is, and the edge's token

variable "control_url" {
  description = "Control's base URL, as `https://control.example.com`."
  type        = string
  validation {
    condition     = can(regex("^https?://[^/\\s'?#]+(/[^\\s'?#]*)?$", var.control_url))
    error_message = "control_url is not the URL of a control: write it as https://control.example.com."
  }
}

variable "insecure_control" {
  description = "Whether the token may be sent to another machine over `http`, where the network between is your own."
  type        = bool
  default     = false
}

variable "control_ca" {
  description = "Certificates (PEM) to trust besides the public ones, for a control or regions with a private CA."
  type        = string
  default     = null
  validation {
    condition     = var.control_ca == null ? true : strcontains(var.control_ca, "-----BEGIN CERTIFICATE-----")
    error_message = "control_ca holds no certificate: give its text in PEM, as by file(\"ca.pem\"), not its path."
  }
}

variable "token_file" {
  description = "A file on the machine with the edge's token alone, put there by the platform's secret store."
  type        = string
  default     = null
  validation {
    condition     = var.token_file == null ? true : startswith(var.token_file, "/")
    error_message = "token_file is a path on the machine, which begins with `/`; a token's text belongs in `token`."
  }
}

variable "token_command" {
  description = "A command that prints the edge's token, run by root on the machine: `aws secretsmanager get-secret-value …`."
  type        = string
  default     = null
  validation {
    condition     = var.token_command == null ? true : trimspace(var.token_command) != "" && !strcontains(var.token_command, "\n")
    error_message = "token_command is one line for a shell, or null; put several lines into a program on the machine's image."
  }
}

variable "token" {
  description = "The edge's token itself. It is then in user data and in Terraform's state, for all who read these."
  type        = string
  default     = null
  sensitive   = true
  validation {
    condition     = var.token == null ? true : can(regex("^gtm_[A-Za-z0-9_-]+$", var.token))
    error_message = "token is none of gtm's, which begin with `gtm_`: make one by `gtm token create NAME --role edge`."
  }
}

# What the edge is and where it listens

variable "name" {
  description = "The edge's name; null: the one that its token is for."
  type        = string
  default     = null
  validation {
    condition     = var.name == null ? true : can(regex("^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", var.name))
    error_message = "name is made of letters, digits, `.`, `_` and `-`, as fra-1; leave it out to take the token's."
  }
}

variable "dns_addresses" {
  description = "Addresses that DNS is answered on."
  type        = list(string)
  default     = ["0.0.0.0", "::"]
  validation {
    condition     = length(var.dns_addresses) > 0 && alltrue([for one in var.dns_addresses : can(cidrhost("${one}/0", 0))])
    error_message = "dns_addresses takes literal IPv4 and IPv6 addresses, without ports, and at least one: [\"192.0.2.53\", \"2001:db8::53\"]."
  }
}

variable "dns_port" {
  description = "The port of DNS, UDP and TCP."
  type        = number
  default     = 53
  validation {
    condition     = var.dns_port >= 1 && var.dns_port <= 65535 && floor(var.dns_port) == var.dns_port
    error_message = "dns_port is a port, from 1 to 65535; resolvers ask on 53 alone."
  }
}

variable "http_addresses" {
  description = "Addresses that look-ups and redirects are answered on. Name loopback alone where a proxy speaks TLS before it."
  type        = list(string)
  default     = ["0.0.0.0", "::"]
  validation {
    condition     = length(var.http_addresses) > 0 && alltrue([for one in var.http_addresses : can(cidrhost("${one}/0", 0))])
    error_message = "http_addresses takes literal IPv4 and IPv6 addresses, without ports, and at least one: [\"127.0.0.1\"]."
  }
}

variable "http_port" {
  description = "The port of HTTP."
  type        = number
  default     = 80
  validation {
    condition     = var.http_port >= 1 && var.http_port <= 65535 && floor(var.http_port) == var.http_port
    error_message = "http_port is a port, from 1 to 65535."
  }
}

variable "systemd_resolved" {
  description = "Where its stub has port 53: `refuse` ends the set-up and says so, `make-room` turns the stub off."
  type        = string
  default     = "refuse"
  validation {
    condition     = contains(["refuse", "make-room"], var.systemd_resolved)
    error_message = "systemd_resolved is \"refuse\" or \"make-room\"."
  }
}

variable "workers" {
  description = "DNS processes and HTTP processes, each."
  type        = number
  default     = 1
  validation {
    condition     = var.workers >= 1 && var.workers <= 64 && floor(var.workers) == var.workers
    error_message = "workers is a whole number from 1 to 64: about one for each core of the machine."
  }
}

variable "trusted_proxies" {
  description = "Networks of proxies whose `X-Forwarded-For` or `Forwarded` is believed."
  type        = list(string)
  default     = []
  validation {
    condition     = alltrue([for one in var.trusted_proxies : can(cidrhost(one, 0))])
    error_message = "trusted_proxies takes networks, such as 10.0.0.0/24 or fd00::/64; a single proxy is 10.0.0.5/32."
  }
}

variable "region" {
  description = "The region that the edge runs in, by the policy's name; null: none."
  type        = string
  default     = null
}

variable "country" {
  description = "Where the edge stands (`DE`), for rules that bind edges; null: where its region is."
  type        = string
  default     = null
  validation {
    condition     = var.country == null ? true : can(regex("^[A-Z]{2}$", var.country))
    error_message = "country is a code of two capital letters (ISO 3166-1), as DE."
  }
}

variable "operator_country" {
  description = "Where whoever runs the edge is established, for the same; null: its region's operator's."
  type        = string
  default     = null
  validation {
    condition     = var.operator_country == null ? true : can(regex("^[A-Z]{2}$", var.operator_country))
    error_message = "operator_country is a code of two capital letters (ISO 3166-1), as DE."
  }
}

variable "dns_cookie_secret" {
  description = "For edges that share an address: what DNS cookies are made with, as 32 hexadecimal digits in a `file` on the machine or printed by a `command`."
  type        = map(string)
  default     = null
  validation {
    condition     = length(setsubtract(try(keys(var.dns_cookie_secret), []), ["file", "command"])) == 0
    error_message = "dns_cookie_secret: there is no field `${join("`, `", setsubtract(try(keys(var.dns_cookie_secret), []), ["file", "command"]))}`; the fields are `file` and `command`."
  }
  validation {
    condition     = var.dns_cookie_secret == null ? true : (try(var.dns_cookie_secret.file, null) == null) != (try(var.dns_cookie_secret.command, null) == null)
    error_message = "dns_cookie_secret has one of `file` and `command`."
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

variable "geoip_anonymous_db" {
  description = "A database of anonymising networks (MMDB), a path on the machine; null: none is known."
  type        = string
  default     = null
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
