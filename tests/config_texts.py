"""Configurations as deployments have them, for tests: whole files as text."""

from __future__ import annotations

ARGS_LIST = """\
# Rendered for cluster eu-1; do not edit by hand (ask #inference).
apiVersion: apps/v1
kind: Deployment
metadata:
  name: vllm-chat
  namespace: llm
  annotations:
    deployment.kubernetes.io/revision: "41"
spec:
  replicas: 2
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.9.1
          args:
            # was --gpu-memory-utilization=0.60 during the test
            - "--model=meta-llama/Llama-3.1-8B-Instruct"
            - "--max-num-seqs=16"   # small on purpose
            - --block-size
            - "32"
            - --gpu-memory-utilization=0.60
            - --enforce-eager
          env:
            - name: OMP_NUM_THREADS
              value: "64"
            - {name: VLLM_LOGGING_LEVEL, value: "DEBUG"}
          resources:
            limits: {cpu: "4", nvidia.com/gpu: 1}
        - name: exporter
          image: exporter:1.2
          args: ["--max-num-seqs=16", "--port=9400"]
"""
SHELL_IN_YAML = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: vllm-batch}
spec:
  template:
    spec:
      containers:
        - name: engine
          command: ["/bin/bash", "-c"]
          args:
            - |
              ulimit -n 65536
              exec vllm serve /models/qwen \\
                --tensor-parallel-size 2 \\
                --max-num-batched-tokens 512 \\
                --max-num-seqs 256
"""
MANY = """\
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: gateway
data:
  max_retries: "8"
  gateway.yaml: |
    lb_policy: ring_hash
    pool_size: 4
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: retrieval
spec:
  template:
    spec:
      containers:
      - name: retrieval
        args: [--pool-size, "4", --port, "8080"]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: gateway
spec:
  template:
    spec:
      containers:
      - name: gateway
        args: [--pool-size, "4"]
"""
ANCHORS = """\
# docker compose up -d
x-limits: &limits
  OMP_NUM_THREADS: "24"
  NCCL_DEBUG: WARN
services:
  vllm:
    image: vllm/vllm-openai:v0.9.1
    environment:
      <<: *limits
      VLLM_LOGGING_LEVEL: DEBUG
    command: >-
      --model mistralai/Mistral-7B-Instruct-v0.3
      --max-model-len 32768 --max-num-seqs 4
  reranker:
    image: reranker:3
    environment:
      <<: *limits
"""
COMPOSE_LIST = """\
services:
  sglang:
    image: lmsysorg/sglang:latest
    command:
      - python3
      - -m
      - sglang.launch_server
      - --mem-fraction-static
      - '0.45'
      - --max-running-requests=8
    environment:
      - CUDA_VISIBLE_DEVICES=0
      - SGLANG_LOG_LEVEL=debug
    ports: ["30000:30000"]
"""
COMPOSE_STRING = """\
services:
  tgi:
    image: ghcr.io/huggingface/text-generation-inference:2.4.0
    command: "--model-id /data/llama --max-concurrent-requests 128 --max-batch-total-tokens 8192"
    shm_size: 1g
"""
HELM = """\
# values.yaml of chart inference/vllm 0.4
replicaCount: 2   # HPA is off
engine:
  maxNumSeqs: 256
  max_num_seqs: 8   # per replica
  gpu_memory_utilization: .55
  extraArgs: []
resources:
  limits:
    cpu: 2
    memory: 64Gi
  requests:
    cpu: 2
"""
TRITON = """\
name: "ensemble_llm"
backend: "tensorrtllm"
max_batch_size: 64
# measured at 20 QPS
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 500000
}
instance_group [ { count: 1 kind: KIND_GPU } ]
parameters: {
  key: "kv_cache_free_gpu_mem_fraction"
  value: { string_value: "0.30" }
}
parameters: {
  key: "enable_chunked_context"
  value: { string_value: "false" }
}
"""
SHELL = """\
#!/usr/bin/env bash
# start command of the unit
export OMP_NUM_THREADS="96"
export VLLM_LOGGING_LEVEL=INFO
vllm serve meta-llama/Llama-3.1-70B-Instruct \\
  --tensor-parallel-size 4 \\
  --max-num-batched-tokens=16384 \\
  --gpu-memory-utilization '0.62' \\
  --enforce-eager
"""
ENV = 'MODEL_ID=/data/llama\nMAX_BATCH_SIZE="2"\nMAX_WAIT_MS=500\n# MAX_WAIT_MS=50\nLOG_LEVEL=debug\n'
JSON = '{\n  "model": "llama",\n  "max_num_seqs": 16,\n  "gpu_memory_utilization": 0.6,\n  "enforce_eager": true\n}\n'
KSERVE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: chat-llama
spec:
  predictor:
    minReplicas: 1
    model:
      modelFormat: {name: huggingface}
      args:
        - --model_name=chat-llama
        - --max-model-len=8192
        - --max-num-seqs=12
      storageUri: pvc://models/llama
      resources:
        limits: {nvidia.com/gpu: "1"}
"""
LEADER_WORKER = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: vllm-405b
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
          - name: vllm-leader
            image: vllm/vllm-openai:v0.10.0
            command: [sh, -c, "vllm serve /m --tensor-parallel-size 8 --gpu-memory-utilization 0.55"]
    workerTemplate:
      spec:
        containers:
          - name: vllm-worker
            image: vllm/vllm-openai:v0.10.0
"""
RAY_SERVE = """\
# serve deploy serve_config.yaml
applications:
  - name: llm
    route_prefix: /
    import_path: ray.serve.llm:build_openai_app
    args:
      llm_configs:
        - model_loading_config:
            model_id: qwen
          engine_kwargs:
            tensor_parallel_size: 2
            max_num_seqs: 8        # halved for the demo
            enable_chunked_prefill: false
          deployment_config:
            max_ongoing_requests: 64
"""
STACK = """\
servingEngineSpec:
  runtimeClassName: ""
  modelSpec:
    - name: "llama3"
      repository: "vllm/vllm-openai"
      tag: "v0.10.0"
      replicaCount: 2
      vllmConfig:
        enableChunkedPrefill: false
        maxModelLen: 16384
        extraArgs: ["--max-num-batched-tokens", "1024", "--gpu-memory-utilization", "0.9"]
      lmcacheConfig:
        enabled: true
        cpuOffloadingBufferSize: "30"
"""
UNIT = """\
[Unit]
Description=vLLM chat
After=network-online.target

[Service]
User=vllm
Environment=OMP_NUM_THREADS=96
EnvironmentFile=-/etc/vllm/chat.env
ExecStart=/opt/vllm/bin/vllm serve /models/llama \\
    --port 8000 \\
    --max-num-batched-tokens 512
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
DOCKER_RUN = """\
set -euo pipefail
docker run --rm --gpus all --shm-size 1g -p 8000:8000 \\
  -e VLLM_LOGGING_LEVEL=DEBUG -e OMP_NUM_THREADS=48 \\
  vllm/vllm-openai:v0.10.0 --model /models/qwen --max-num-seqs 4
"""
TRT_LLM = """\
# trtllm-serve MODEL --extra_llm_api_options extra.yaml
kv_cache_config:
  free_gpu_memory_fraction: 0.35
  enable_block_reuse: true
enable_chunked_prefill: false
max_batch_size: 64
cuda_graph_config:
  max_batch_size: 4
  enable_padding: true
"""
