locals {
  root     = "/opt/gtm/${var.folder}"
  config   = "/etc/gtm/${var.folder}"
  fetch    = "${local.root}/secrets"
  settings = "${local.config}.env"
  secrets  = "${local.config}.secret.env"

  package     = merge({ version = null, url = null, sha256 = null }, var.package)
  requirement = local.package.url == null ? "gtm-service==${coalesce(local.package.version, "0")}" : "gtm-service @ ${local.package.url}#sha256=${coalesce(local.package.sha256, "0")}"
  locked      = "${local.requirement}${local.package.version != null && local.package.sha256 != null ? " --hash=sha256:${coalesce(local.package.sha256, "0")}" : ""}"
  package_id  = substr(sha256(jsonencode([local.locked, var.python, var.pip_arguments])), 0, 16)

  # Where each secret is when the set-up fetches them.
  kept = { for name in var.given_names : name => "${local.config}.given/${basename(name)}" }
  sources = merge(
    { for name, one in var.secrets : name => try(one.file, null) != null ? ["file", one.file] : ["command", try(one.command, null) == null ? "false" : one.command] },
    { for name, path in local.kept : name => ["file", path] },
  )
  listed = [
    for name, source in local.sources :
    "  ${startswith(name, "/") ? "document" : "variable"} ${join(" ", [for part in concat([name], source) : local.quoted[part]])}"
  ]
  fetcher = join("\n", [
    "#!/bin/sh",
    "SECRETS=${local.quoted[local.secrets]}",
    "list() {",
    join("\n", concat(local.listed, ["  :"])),
    "}",
    trimprefix(file("${path.module}/secrets.sh"), "#!/bin/sh\n"),
  ])
  # systemd reads this file, and so does a shell: in single quotes both take all as it is.
  environment = join("", [for name, value in var.settings : "${name}='${value}'\n"])

  files = merge(
    {
      (local.settings)                             = ["0644", local.environment]
      (local.fetch)                                = ["0700", local.fetcher]
      "/etc/systemd/system/${var.service}.service" = ["0644", var.unit]
    },
    { for path, text in var.files : path => ["0644", text] },
  )
  reads = concat([local.settings], keys(var.files), [for name in keys(local.sources) : name if startswith(name, "/")])

  # Texts of the set-up as words of a shell.
  words = toset(concat(
    flatten([for name, source in local.sources : concat([name], source)]),
    flatten([for path, one in var.downloads : [path, one.url, coalesce(try(one.sha256, null), "-")]]),
    var.pip_arguments, values(local.kept), local.reads, ["/etc/systemd/system/${var.service}.service"],
    [var.service, local.root, local.settings, local.secrets, local.fetch, local.package_id, local.requirement, local.locked, coalesce(var.python, "-")],
  ))
  quoted = { for text in local.words : text => "'${replace(text, "'", "'\\''")}'" }

  put = [
    for path, one in local.files : join("\n", [
      "put ${one[0]} ${local.quoted[path]} << 'END_${substr(sha256(one[1]), 0, 12)}'",
      trimsuffix(one[1], "\n"),
      "END_${substr(sha256(one[1]), 0, 12)}",
    ])
  ]
  downloads = [
    for path, one in var.downloads :
    "download ${local.quoted[path]} ${local.quoted[one.url]} ${try(one.sha256, null) == null ? "''" : local.quoted[one.sha256]}"
  ]
  given = [
    for name, path in local.kept : join("\n", [
      "mkdir -p -m 0700 ${local.config}.given",
      "(umask 077 && printf '%s\\n' '${replace(var.given[name], "'", "'\\''")}' > ${local.quoted[path]})",
    ])
  ]

  script = join("\n", [
    "#!/bin/sh",
    "# Sets up ${var.service} on this machine, or brings it to what is said here. Run it as often as you like: it",
    "# changes only what differs, and leaves a service that runs as it is if something fails. Written by Terraform.",
    "set -eu",
    "SERVICE=${local.quoted[var.service]}",
    "ROOT=${local.quoted[local.root]}",
    "SETTINGS=${local.quoted[local.settings]}",
    "SECRETS=${local.quoted[local.secrets]}",
    "FETCH=${local.quoted[local.fetch]}",
    "READS='${join(" ", local.reads)}'",
    "PACKAGE_ID=${local.quoted[local.package_id]}",
    "REQUIREMENT=${local.quoted[local.requirement]}",
    "PYTHON=${var.python == null ? "" : local.quoted[var.python]}",
    "INSTALL_PACKAGES=${var.install_packages ? "yes" : ""}",
    "LISTENS='${join(" ", var.listens)}'",
    "MAKE_ROOM=${var.make_room ? "yes" : ""}",
    "ON_CHANGE=${var.on_change}",
    "START_TIMEOUT=${var.start_timeout}",
    "",
    "pip() {",
    "  \"$new/bin/python\" -m pip install --quiet --disable-pip-version-check --no-input --no-deps ${join(" ", [for one in var.pip_arguments : local.quoted[one]])} \"$@\"",
    "}",
    "LOCKED=${local.quoted[local.locked]}",
    "",
    "files() {",
    join("\n", local.put),
    "}",
    "",
    "given() {",
    join("\n", concat(local.given, ["  :"])),
    "}",
    "",
    "downloads() {",
    join("\n", concat(local.downloads, ["  :"])),
    "}",
    "",
    "prepare() {",
    trimsuffix(var.prepare, "\n"),
    "}",
    "",
    "finish() {",
    trimsuffix(var.finish, "\n"),
    "}",
    file("${path.module}/setup.sh"),
  ])

  user_data = join("\n", ["#cloud-config", yamlencode({
    write_files = [{
      path        = "${local.root}/setup"
      owner       = "root:root"
      permissions = "0700"
      content     = local.script
    }]
    runcmd = [["${local.root}/setup"]]
  })])
}
