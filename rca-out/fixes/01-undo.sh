#!/bin/sh
# Proposed by rca; read it before you run it.
# deployment/llm-engine, change chg-670
#   is    --max-queue-delay-ms=0
#   back  --max-queue-delay-ms=300
set -eu
revision=42
kubectl -n llm rollout history deployment/llm-engine --revision="$revision"
kubectl -n llm rollout undo deployment/llm-engine --to-revision="$revision"
kubectl -n llm rollout status deployment/llm-engine --timeout=15m
