{{- define "gtm.name" -}}
{{- if contains "gtm" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-gtm{{ end }}
{{- end }}

{{- /* Labels that select the pods of one part: (list $ "edge"), or (list $ "balancer" "eu-central"). */}}
{{- define "gtm.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: gtm
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- if gt (len .) 2 }}
gtm/balancer: {{ index . 2 }}
{{- end }}
{{- end }}

{{- define "gtm.labels" -}}
{{- $root := index . 0 -}}
{{ include "gtm.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{- define "gtm.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What every pod says: (list $ values-of-the-part selector). The variables of Services would take the place of gtm's own. */}}
{{- define "gtm.pod" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  {{- with $root.Values.fsGroup }}
  fsGroup: {{ . }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $part.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
topologySpreadConstraints:
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "gtm.selector" (index $ 2) | nindent 8 }}
{{- end }}
{{- end }}

{{- define "gtm.container" -}}
image: {{ include "gtm.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* Variables of a part: what the chart says, then `settings`, which win: (list $ given settings). */}}
{{- define "gtm.environment" -}}
{{- $root := index . 0 -}}
{{- $given := index . 1 -}}
{{- with $root.Values.metrics.allow }}{{ $_ := set $given "GTM_METRICS_ALLOW" . }}{{ end }}
{{- range $name, $value := mergeOverwrite $given (index . 2) }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{- define "gtm.controlUrl" -}}
{{- if .Values.controlUrl }}{{ .Values.controlUrl }}
{{- else if .Values.control.enabled }}http://{{ include "gtm.name" . }}-control.{{ .Release.Namespace }}.svc:{{ .Values.control.service.port }}
{{- else }}{{ fail "controlUrl: say where control is, or enable it here (control.enabled)" }}
{{- end }}
{{- end }}

{{- /* What edges and balancers say of the way to control. Inside of this release it is the cluster's network; elsewhere it is https. */}}
{{- define "gtm.follower" -}}
GTM_CONTROL_URL: {{ include "gtm.controlUrl" . }}
GTM_TOKEN_FILE: /etc/gtm/token/token
{{- if not .Values.controlUrl }}
GTM_INSECURE_CONTROL: "true"
{{- end }}
{{- end }}

{{- /* A volume with one key of a Secret: (list name reference file). */}}
{{- define "gtm.secretVolume" -}}
- name: {{ index . 0 }}
  secret:
    secretName: {{ (index . 1).secret }}
    items: [{key: {{ (index . 1).key }}, path: {{ index . 2 }}}]
{{- end }}
