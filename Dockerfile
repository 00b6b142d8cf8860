# The demo on a CPU:  docker build --target cpu --tag ngrpo:cpu .
# vLLM on GPUs:       docker build --target gpu --tag ngrpo:gpu .
# An index of packages, such as one with PyTorch's CPU builds: --build-arg PIP_INDEX_URL=... or PIP_EXTRA_INDEX_URL=...
ARG PYTHON=3.12.11-slim-bookworm

FROM python:${PYTHON} AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 1000 ngrpo && install --directory --owner ngrpo /work

FROM base AS wheel
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY callbacks callbacks
COPY conf conf
COPY ngrpo ngrpo
RUN pip wheel --no-deps --wheel-dir /wheels .

FROM base AS cpu
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG TORCH=2.13.0
RUN pip install "torch==${TORCH}"
# hadolint ignore=DL3013
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    wheel="$(ls /wheels/ngrpo-*.whl)" && pip install "${wheel}[train]"
USER 1000
WORKDIR /work
ENTRYPOINT ["ngrpo"]
CMD ["--help"]

FROM base AS gpu
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
# torch.compile and Triton compile at run time.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc g++ && rm -rf /var/lib/apt/lists/*
# hadolint ignore=DL3013
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    wheel="$(ls /wheels/ngrpo-*.whl)" && pip install "${wheel}[train,vllm]"
USER 1000
WORKDIR /work
ENTRYPOINT ["ngrpo"]
CMD ["--help"]
