# Control, and beside its first start what a new world lacks: tokens for its edge, its balancers and its admin, and a policy.
set -eu
unset GTM_TOKEN_FILE # of commands that come later
umask 077

token() { # NAME, and what it is for; again after a start that was cut off
  gtm token create "$@" --direct > "/etc/gtm/$1.new" || gtm token rotate "$1" --grace 0s --direct > "/etc/gtm/$1.new"
}

begin() {
  until python3 -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/healthz')" 2> /dev/null; do sleep 0.2; done
  token root --role admin # `admin` is the first one, which the log shows
  token edge --role edge
  for region in eu-central us-east ap-southeast; do token "$region" --role balancer --regions "$region"; done
  for name in edge eu-central us-east ap-southeast; do mv "/etc/gtm/$name.new" "/etc/gtm/$name"; done
  GTM_TOKEN_FILE=/etc/gtm/root.new gtm apply /setup/policy --yes --no-wait
  mv /etc/gtm/root.new /etc/gtm/root
}

[ -s /etc/gtm/root ] || begin &
exec gtm control
