"""Configurations as deployments have them, and one edit of each: for tests of patches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """A file, one setting of it, and what must stand in the file once that is changed.

    `old` None adds the setting, `new` None takes it out.
    """

    path: str
    text: str
    subject: str
    key: str
    old: str | None
    new: str | None
    expected: str


_ARGS_LIST = """\
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
_SHELL_IN_YAML = """\
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
_MANY = """\
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
_ANCHORS = """\
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
_COMPOSE_LIST = """\
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
_COMPOSE_STRING = """\
services:
  tgi:
    image: ghcr.io/huggingface/text-generation-inference:2.4.0
    command: "--model-id /data/llama --max-concurrent-requests 128 --max-batch-total-tokens 8192"
    shm_size: 1g
"""
_HELM = """\
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
_TRITON = """\
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
_SHELL = """\
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
_ENV = 'MODEL_ID=/data/llama\nMAX_BATCH_SIZE="2"\nMAX_WAIT_MS=500\n# MAX_WAIT_MS=50\nLOG_LEVEL=debug\n'
_JSON = '{\n  "model": "llama",\n  "max_num_seqs": 16,\n  "gpu_memory_utilization": 0.6,\n  "enforce_eager": true\n}\n'
_KSERVE = """\
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
_LEADER_WORKER = """\
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
_RAY_SERVE = """\
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
_STACK = """\
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
_UNIT = """\
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
_DOCKER_RUN = """\
set -euo pipefail
docker run --rm --gpus all --shm-size 1g -p 8000:8000 \\
  -e VLLM_LOGGING_LEVEL=DEBUG -e OMP_NUM_THREADS=48 \\
  vllm/vllm-openai:v0.10.0 --model /models/qwen --max-num-seqs 4
"""
_TRT_LLM = """\
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

CONFIGS = {
    "kubernetes list of flags": Config(
        "config/vllm.yaml", _ARGS_LIST, "deployment/vllm-chat", "max_num_seqs", "16", "64",
        '- "--max-num-seqs=64"   # small on purpose',
    ),
    "flag and value as two items": Config(
        "config/vllm.yaml", _ARGS_LIST, "Deployment/vllm-chat", "block_size", "32", "16",
        '- --block-size\n            - "16"',
    ),
    "value that a comment has too": Config(
        "config/vllm.yaml", _ARGS_LIST, "", "gpu_memory_utilization", "0.6", "0.92",
        "- --gpu-memory-utilization=0.92\n",
    ),
    "environment of a pod": Config(
        "config/vllm.yaml", _ARGS_LIST, "", "omp_num_threads", "64", "8", 'value: "8"',
    ),
    "environment on one line, CRLF": Config(
        "config/vllm.yaml", _ARGS_LIST.replace("\n", "\r\n"), "", "vllm_logging_level", "DEBUG",
        "WARNING", '{name: VLLM_LOGGING_LEVEL, value: "WARNING"}\r\n',
    ),
    "limits on one line": Config(
        "config/vllm.yaml", _ARGS_LIST, "", "resources.limits.cpu", "4", "16",
        'limits: {cpu: "16", nvidia.com/gpu: 1}',
    ),
    "switch taken out": Config(
        "config/vllm.yaml", _ARGS_LIST, "", "enforce_eager", "true", None,
        "utilization=0.60\n          env:",
    ),
    "shell inside of a manifest": Config(
        "config/batch.yml", _SHELL_IN_YAML, "statefulset/vllm-batch", "max_num_batched_tokens",
        "512", "8192", "--max-num-batched-tokens 8192 \\\n",
    ),
    "one of several documents": Config(
        "gateway.yaml", _MANY, "deployment/gateway", "pool_size", "4", "64",
        '- name: gateway\n        args: [--pool-size, "64"]',
    ),
    "text inside of a ConfigMap": Config(
        "gateway.yaml", _MANY, "configmap/gateway", "gateway.yaml.lb_policy", "ring_hash",
        "least_request", "    lb_policy: least_request\n",
    ),
    "one user of an anchor": Config(
        "docker-compose.yml", _ANCHORS, "service/vllm", "max_num_seqs", "4", "64",
        "--max-model-len 32768 --max-num-seqs 64\n",
    ),
    "compose list, two items": Config(
        "docker-compose.yml", _COMPOSE_LIST, "", "mem_fraction_static", "0.45", "0.88", "- '0.88'",
    ),
    "compose environment as a list": Config(
        "docker-compose.yml", _COMPOSE_LIST, "", "sglang_log_level", "debug", "warning",
        "- SGLANG_LOG_LEVEL=warning",
    ),
    "compose command as one string": Config(
        "compose.yaml", _COMPOSE_STRING, "", "max_batch_total_tokens", "8192", "32768",
        '--max-batch-total-tokens 32768"',
    ),
    "values of a chart": Config(
        "values.yaml", _HELM, "", "engine.gpu_memory_utilization", "0.55", "0.9",
        "gpu_memory_utilization: 0.9\n",
    ),
    "nested values of a chart": Config(
        "values.yaml", _HELM, "", "resources.limits.cpu", "2", "8",
        "limits:\n    cpu: 8\n    memory: 64Gi\n  requests:\n    cpu: 2",
    ),
    "triton": Config(
        "model/config.pbtxt", _TRITON, "", "dynamic_batching.max_queue_delay_microseconds",
        "500000", "50000", "max_queue_delay_microseconds: 50000\n",
    ),
    "triton parameter": Config(
        "model/config.pbtxt", _TRITON, "", "parameters.kv_cache_free_gpu_mem_fraction", "0.30",
        "0.85", 'string_value: "0.85"',
    ),
    "shell script with continued lines": Config(
        "start.sh", _SHELL.split("\n", 1)[1], "", "gpu_memory_utilization", "0.62", "0.9",
        "--gpu-memory-utilization '0.9' \\\n",
    ),
    "export in a shell script": Config(
        "start.sh", _SHELL.split("\n", 1)[1], "", "omp_num_threads", "96", "12",
        'export OMP_NUM_THREADS="12"\n',
    ),
    "last switch of a command": Config(
        "start.sh", _SHELL.split("\n", 1)[1], "", "enforce_eager", "true", None,
        "--gpu-memory-utilization '0.62' \\\n",
    ),
    "environment file, CRLF": Config(
        "tgi.env", _ENV.replace("\n", "\r\n"), "", "max_wait_ms", "500", "50",
        "\r\nMAX_WAIT_MS=50\r\n# MAX_WAIT_MS=50",
    ),
    "no line end at the end": Config(
        "tgi.env", _ENV.rstrip("\n"), "", "log_level", "debug", "warning", "\nLOG_LEVEL=warning",
    ),
    "json": Config(
        "engine.json", _JSON, "", "max_num_seqs", "16", "64", '"max_num_seqs": 64,\n',
    ),
    "flag added to a list": Config(
        "config/vllm.yaml", _ARGS_LIST, "deployment/vllm-chat", "max_num_queued_reqs", None, "64",
        '- "--max-num-queued-reqs=64"\n',
    ),
    "flag added to a string": Config(
        "compose.yaml", _COMPOSE_STRING, "", "max_waiting_tokens", None, "20",
        "--max-waiting-tokens=20 ",
    ),
    "flag added to a shell command": Config(
        "start.sh", _SHELL.split("\n", 1)[1], "", "max_num_seqs", None, "64", "--max-num-seqs=64 ",
    ),
    "flag of a KServe service": Config(
        "isvc.yaml", _KSERVE, "inferenceservice/chat-llama", "max_num_seqs", "12", "64", "- --max-num-seqs=64\n",
    ),
    "command of a LeaderWorkerSet": Config(
        "lws.yaml", _LEADER_WORKER, "leaderworkerset/vllm-405b", "gpu_memory_utilization", "0.55",
        "0.9", '--gpu-memory-utilization 0.9"]',
    ),
    "engine of Ray Serve": Config(
        "serve_config.yaml", _RAY_SERVE, "", "max_num_seqs", "8", "64", "max_num_seqs: 64        # halved",
    ),
    "arguments in the values of a chart": Config(
        "values.yaml", _STACK, "", "max_num_batched_tokens", "1024", "8192", '"--max-num-batched-tokens", "8192"',
    ),
    "engine in the values of a chart": Config(
        "values.yaml", _STACK, "", "max_model_len", "16384", "8192", "maxModelLen: 8192\n",
    ),
    "unit of systemd": Config(
        "vllm.service", _UNIT, "", "max_num_batched_tokens", "512", "8192", "--max-num-batched-tokens 8192\n",
    ),
    "environment in a unit of systemd": Config(
        "vllm.service", _UNIT, "", "omp_num_threads", "96", "12", "Environment=OMP_NUM_THREADS=12\n",
    ),
    "docker run": Config(
        "run.sh", _DOCKER_RUN, "", "max_num_seqs", "4", "64", "--max-num-seqs 64\n",
    ),
    "environment of docker run": Config(
        "run.sh", _DOCKER_RUN, "", "omp_num_threads", "48", "8", "-e OMP_NUM_THREADS=8 ",
    ),
    "options of TensorRT-LLM": Config(
        "extra.yaml", _TRT_LLM, "", "kv_cache_config.free_gpu_memory_fraction", "0.35", "0.85", "free_gpu_memory_fraction: 0.85\n",
    ),
    "one of two that are called alike": Config(
        "extra.yaml", _TRT_LLM, "", "cuda_graph_config.max_batch_size", "4", "64", "cuda_graph_config:\n  max_batch_size: 64\n",
    ),
}  # fmt: skip
