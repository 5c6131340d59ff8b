#!/bin/sh
# Proposed by rca; read it before you run it.
# deployment/llm-engine, change chg-670
#   is    --max-queue-delay-ms=300
#   back  --max-queue-delay-ms=0
set -eu
now=$(kubectl -n llm get deployment/llm-engine -o jsonpath='{.metadata.annotations.deployment\.kubernetes\.io/revision}')
if [ "$now" != 42 ]; then
  echo "deployment/llm-engine is at revision $now, not at 42: it was changed again; look first" >&2
  exit 1
fi
revision=41
kubectl -n llm rollout history deployment/llm-engine --revision="$revision"
kubectl -n llm rollout undo deployment/llm-engine --to-revision="$revision"
kubectl -n llm rollout status deployment/llm-engine --timeout=15m
