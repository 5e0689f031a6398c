{{/* A chart that has cleanerd as a dependency can use these in its brokers' pods: "cleanerd.agent" as an init container that copies the
agent's jar to the volume "agent", "cleanerd.container" as a side-car. Both take (dict "root" $ "mounts" (list ...)). */}}

{{- define "cleanerd.labels" -}}
app.kubernetes.io/name: cleanerd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "cleanerd.selector" -}}
app.kubernetes.io/name: cleanerd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cleanerd.name" -}}
{{- if contains "cleanerd" .Release.Name }}{{ .Release.Name | trunc 50 }}{{ else }}{{ printf "%s-cleanerd" (.Release.Name | trunc 40) }}{{ end }}
{{- end }}

{{- define "cleanerd.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- define "cleanerd.nothing" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "cleanerd.agent" -}}
name: cleanerd-agent
image: {{ include "cleanerd.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: [install, --mode=644, /opt/cleanerd/agent/cleanerd-agent.jar, /agent/]
securityContext:
  {{- include "cleanerd.nothing" .root | nindent 2 }}
volumeMounts:
  - {name: agent, mountPath: /agent}
{{- end }}

{{- define "cleanerd.container" -}}
name: cleanerd
image: {{ include "cleanerd.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- with .logDirs }}
env:
  - {name: CLEANERD_CLEANERD_LOG_DIRS, value: {{ join "," . | quote }}}
{{- end }}
ports:
  - {name: cleanerd, containerPort: {{ .root.Values.service.port }}}
# A disk that cannot be read is no reason to start the daemon again and again: /livez asks the process alone.
livenessProbe:
  httpGet: {path: /livez, port: cleanerd}
  periodSeconds: 30
  timeoutSeconds: 5
  failureThreshold: 4
readinessProbe:
  httpGet: {path: /readyz, port: cleanerd}
  periodSeconds: 10
  timeoutSeconds: 5
securityContext:
  {{- include "cleanerd.nothing" .root | nindent 2 }}
resources:
  {{- toYaml .root.Values.resources | nindent 2 }}
volumeMounts:
  {{- toYaml .mounts | nindent 2 }}
  - {name: settings, mountPath: /etc/cleanerd, readOnly: true}
  - {name: run, mountPath: /run/cleanerd}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "cleanerd.volumes" -}}
- name: settings
  configMap: {name: {{ include "cleanerd.name" . }}}
- name: run
  emptyDir: {medium: Memory}
- name: tmp
  emptyDir: {}
{{- end }}

{{/* What the pods of both kinds have in common. */}}
{{- define "cleanerd.metadata" -}}
labels:
  {{- include "cleanerd.labels" . | nindent 2 }}
  {{- with .Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  checksum/settings: {{ include "cleanerd.settings" . | sha256sum }}
  {{- with .Values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- define "cleanerd.pod" -}}
terminationGracePeriodSeconds: 60
automountServiceAccountToken: false
# Else a Service named cleanerd puts CLEANERD_PORT into every container, which is no setting.
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
  # Not a second time over a volume that a broker is using.
  fsGroupChangePolicy: OnRootMismatch
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "cleanerd.settings" -}}
{{- $http := dict "cleanerd.http.listen" (printf "0.0.0.0:%d" (int .Values.service.port)) "cleanerd.http.hosts" (include "cleanerd.name" .) }}
{{- range $key, $value := merge (dict) .Values.settings $http }}
{{ $key | quote }} = {{ if kindIs "slice" $value }}{{ join "," $value | quote }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{- end }}
