variable "applies_to" {
  description = <<-EOT
    Whose requests the GDPR binds here (Regulation (EU) 2016/679, Art. 3). A question of fact, so there is no default:
    - `everyone`: you are established in the EEA, as the controller or as the processor of your tenants (Art. 3(1));
    - `people`: you and your tenants are not, but offer goods or services to people in the EEA, or monitor them (Art. 3(2));
    - `people_and_tenants`: you are not, some of your tenants are (both paragraphs).
  EOT
  type        = string

  validation {
    condition     = contains(["everyone", "people", "people_and_tenants"], var.applies_to)
    error_message = "applies_to: `${var.applies_to}` is not known. Who is established in the EEA? You: `everyone`. Some of your tenants: `people_and_tenants`. Nobody, but you serve people there: `people`."
  }
}

variable "scope" {
  description = "Where such requests may be served: `eea`, so that nothing is transferred to a third country, or `eea_and_adequacy`, also in third countries that have an adequacy decision without bounds on recipients (Art. 45)."
  type        = string

  validation {
    condition     = contains(["eea", "eea_and_adequacy"], var.scope)
    error_message = "scope: `${var.scope}` is neither `eea` nor `eea_and_adequacy`. Regions elsewhere, by safeguards (Art. 46) or an adequacy decision for some recipients (as for the US), stand in `transfers`."
  }
}

variable "services" {
  description = "Names of the services that the rules concern. Refer to resources or module outputs (`module.chat.name`). `[]`: all, those to come included."
  type        = set(string)
}

variable "name" {
  description = "What the rules' names begin with."
  type        = string
  default     = "gdpr"

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?$", var.name))
    error_message = "name: `${var.name}` is no beginning of a name: write 1 to 45 lower-case letters, digits and inner hyphens."
  }
}

variable "tenants" {
  description = "Only requests of these tenants, and those that state none. `[]`: all. Not with `people_and_tenants`, which knows tenants by their country."
  type        = set(string)
  default     = []
}

variable "established_tenants" {
  description = "With `people_and_tenants`: tenants that have an establishment in the EEA although their `country`, which is one only, lies outside."
  type        = set(string)
  default     = []
}

variable "data_classes" {
  description = "Only requests with data of these classes, and those that state none. `[]`: all. The GDPR is about personal data: name all classes that hold any."
  type        = set(string)
  default     = []
}

variable "transfers" {
  description = <<-EOT
    Regions outside of `scope` where requests may be served all the same, and on what ground of Chapter V: region → article and
    document, such as "Art. 46(2)(c): standard contractual clauses of 2026-03-01", or "Art. 45: listed under the EU-US Data Privacy Framework". Handed out with
    refusals, as part of the legal basis.
  EOT
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for ground in var.transfers : can(regex("Art\\. ?4[5679]\\b", ground))])
    error_message = "transfers: ${join(", ", [for region, ground in var.transfers : region if !can(regex("Art\\. ?4[5679]\\b", ground))])} has no ground of Chapter V: name the article and the document, such as \"Art. 46(2)(c): standard contractual clauses of 2026-03-01\"."
  }
}

variable "exclude_jurisdictions" {
  description = "Countries or jurisdictions that are taken out of `scope`, such as adequate ones that your contracts rule out."
  type        = set(string)
  default     = []
}

variable "operators" {
  description = "Who may run the regions: `anyone`, or `in_scope`: companies established inside of `scope` only, since laws elsewhere may reach the operator wherever the machines stand (Art. 48). A region of unknown operator is then out."
  type        = string
  default     = "anyone"

  validation {
    condition     = contains(["anyone", "in_scope"], var.operators)
    error_message = "operators: it is `anyone` or `in_scope`."
  }
}

variable "mode" {
  description = "`enforce`, or `monitor`: only record what the rules would have excluded."
  type        = string
  default     = "enforce"

  validation {
    condition     = contains(["enforce", "monitor"], var.mode)
    error_message = "mode: it is `enforce` or `monitor`."
  }
}

variable "edges" {
  description = "`in_fence`: only edges that stand inside handle these requests. `anywhere`: an edge outside may receive them, and say where they belong."
  type        = string
  default     = "anywhere"

  validation {
    condition     = contains(["anywhere", "in_fence"], var.edges)
    error_message = "edges: it is `anywhere` or `in_fence`."
  }
}

variable "max_policy_age" {
  description = "Seconds without a word from control after which an edge refuses these requests. Left out: it goes on with its last policy."
  type        = number
  default     = null

  validation {
    condition     = var.max_policy_age == null ? true : var.max_policy_age >= 10
    error_message = "max_policy_age: less than 10 s would refuse requests at every short loss of control."
  }
}

variable "on_unknown_location" {
  description = "Of the rule about people: `match`, a client that nobody can locate may be in the EEA; `ignore`: only those known to be there."
  type        = string
  default     = "match"

  validation {
    condition     = contains(["match", "ignore"], var.on_unknown_location)
    error_message = "on_unknown_location: it is `match` or `ignore`."
  }
}

variable "on_anonymous" {
  description = "Of the rule about people: `match`, a client behind a VPN, a proxy or Tor may be in the EEA; `trust`: it is where its address is."
  type        = string
  default     = "match"

  validation {
    condition     = contains(["match", "trust"], var.on_anonymous)
    error_message = "on_anonymous: it is `match` or `trust`."
  }
}

variable "on_doubtful_location" {
  description = "Of the rule about people: `match`, a client whose location measured round trips contradict may be in the EEA; `trust`: it is where the database says."
  type        = string
  default     = "match"

  validation {
    condition     = contains(["match", "trust"], var.on_doubtful_location)
    error_message = "on_doubtful_location: it is `match` or `trust`."
  }
}

variable "max_accuracy_km" {
  description = "Of the rule about people: a client not located to within so many kilometres counts as one that nobody can locate. Left out: not looked at."
  type        = number
  default     = null
}

variable "effective_from" {
  description = "When the rules begin, as 2027-01-01T00:00:00Z. Left out: they are in force at once."
  type        = string
  default     = null

  validation {
    condition     = var.effective_from == null || can(timecmp(var.effective_from, var.effective_from))
    error_message = "effective_from: write a time with its zone, such as 2027-01-01T00:00:00Z."
  }
}

variable "effective_until" {
  description = "When the rules end. Left out: never. What ends by itself opens its fence without asking anybody."
  type        = string
  default     = null

  validation {
    condition     = var.effective_until == null || can(timecmp(var.effective_until, var.effective_until))
    error_message = "effective_until: write a time with its zone, such as 2027-01-01T00:00:00Z."
  }
}

variable "note" {
  description = "Added to the legal basis, which is handed out with refusals: a record of processing activities, a contract, a contact."
  type        = string
  default     = ""

  validation {
    condition     = length(var.note) <= 1000
    error_message = "note: it has ${length(var.note)} characters; the most is 1000."
  }
}
