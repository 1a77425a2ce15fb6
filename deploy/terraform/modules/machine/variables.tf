# What `edge` and `control` have in common: a service on a machine with systemd. They check what people give.

variable "service" {
  description = "The unit's name, without `.service`."
  type        = string
}

variable "folder" {
  description = "Where the program is kept, below /opt/gtm."
  type        = string
}

variable "unit" {
  description = "The unit's text."
  type        = string
}

variable "settings" {
  description = "gtm's variables that are no secrets, by name."
  type        = map(string)
}

variable "files" {
  description = "Texts of files that the service reads, by path."
  type        = map(string)
  default     = {}
}

variable "downloads" {
  description = "Files to fetch, by path."
  type        = map(map(string))
  default     = {}
  validation {
    condition     = length(setsubtract(flatten([for one in var.downloads : try(keys(one), [])]), ["url", "sha256"])) == 0
    error_message = "downloads: there is no field `${join("`, `", setsubtract(flatten([for one in var.downloads : try(keys(one), [])]), ["url", "sha256"]))}`; the fields are `url` and `sha256`."
  }
}

variable "secrets" {
  description = "Where each secret is on the machine, or what prints it there. Those whose name is a path are written there, the others go into the environment."
  type        = map(map(string))
  default     = {}
  validation {
    condition     = length(setsubtract(flatten([for one in var.secrets : try(keys(one), [])]), ["file", "command"])) == 0
    error_message = "secrets: there is no field `${join("`, `", setsubtract(flatten([for one in var.secrets : try(keys(one), [])]), ["file", "command"]))}`; the fields are `file` and `command`."
  }
}

variable "given" {
  description = "Secrets that are handed over in the clear, by name. The set-up holds them."
  type        = map(string)
  default     = {}
  sensitive   = true
}

variable "given_names" {
  description = "The names of those, which are none."
  type        = set(string)
  default     = []
}

variable "package" {
  description = "Where gtm comes from."
  type        = map(string)
  validation {
    condition     = length(setsubtract(try(keys(var.package), []), ["version", "url", "sha256"])) == 0
    error_message = "package: there is no field `${join("`, `", setsubtract(try(keys(var.package), []), ["version", "url", "sha256"]))}`; the fields are `version`, `url` and `sha256`."
  }
}

variable "python" {
  description = "The Python to use, or null."
  type        = string
}

variable "pip_arguments" {
  description = "Further arguments of `pip install`."
  type        = list(string)
}

variable "install_packages" {
  description = "Whether the system's packages may bring Python."
  type        = bool
}

variable "listens" {
  description = "Addresses that must be free before the first start, as `udp/192.0.2.1:53`."
  type        = list(string)
}

variable "make_room" {
  description = "Whether to turn off systemd-resolved's listener on port 53."
  type        = bool
  default     = false
}

variable "on_change" {
  description = "How a running service takes what is new: `reload` or `restart`."
  type        = string
}

variable "prepare" {
  description = "Shell commands before the first start."
  type        = string
  default     = ":"
}

variable "finish" {
  description = "Shell commands once it runs, each time."
  type        = string
  default     = ":"
}

variable "start_timeout" {
  description = "Seconds that a start may take."
  type        = number
}
