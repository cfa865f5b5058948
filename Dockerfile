# What a box trains in. `vastrun image build` builds it: that brings the wheels, so that pip's settings, and the secrets
# in them, stay on the computer that builds. Every pin of a variant is here; what they mean: docs/docker.md.
ARG TORCH=2.13.0
ARG BASE_CU130=pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime@sha256:db80a41f8428644cebcb3d75b0b62df334ab6c0e75785951eb25f48bfbd42407
ARG CUDA_CU130=13.0
ARG NCCL_CU130=2.29.7
ARG BASE_CU126=pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime@sha256:6acf597eeb8e376a96580dde4952f37cc017fef732bb40bfc73f28f25e3f64b4
ARG CUDA_CU126=12.6
ARG NCCL_CU126=2.29.3
ARG BASE_CPU=python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
ARG CUDA_CPU=
ARG NCCL_CPU=

# Of these, what is built now. A CPU variant has no CUDA, and gets its torch here.
ARG BASE=${BASE_CU130}
ARG CUDA=${CUDA_CU130}
ARG NCCL=${NCCL_CU130}

# What is installed lies in one folder, on top of the base's Python. pip runs from its own wheel: the base needs none.
FROM ${BASE} AS packages
ARG CUDA
COPY wheels/ /wheels/
COPY requirements/ trainer/requirements.txt /requirements/
RUN python3 -m venv --without-pip --system-site-packages /opt/vastrun \
 && /opt/vastrun/bin/python "$(echo /wheels/pip-*.whl)/pip" install --no-index --find-links /wheels --no-deps --no-cache-dir \
    --require-hashes --requirement /requirements/requirements.txt --requirement /requirements/image.txt \
    $([ -n "${CUDA}" ] || echo --requirement /requirements/torch-cpu.txt)

FROM packages AS wheel
RUN /opt/vastrun/bin/pip install --no-index --find-links /wheels --no-deps --no-cache-dir \
    --require-hashes --requirement /requirements/build.txt
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY configs/ configs/
COPY docs/batch.md docs/job-file.md docs/
COPY vastrun/ vastrun/
COPY launcher/ vastrun/launcher/
COPY onstart/ vastrun/onstart/
COPY trainer/ vastrun/trainer/
RUN /opt/vastrun/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /dist .

# Host keys that came with a layer would be everybody's: each container makes its own, at the latest when the service
# ssh is started.
FROM ${BASE} AS box
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    ca-certificates curl iproute2 openssh-server tini \
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
 && echo 'ssh-keygen -A >/dev/null' >>/etc/default/ssh \
 && mkdir -p /run/sshd
COPY --from=packages /opt/vastrun /opt/vastrun
ENV PATH=/opt/vastrun/bin:${PATH}
COPY --from=wheel /dist /dist
RUN pip install --no-index --no-deps --no-cache-dir /dist/*.whl
ARG TORCH
ARG CUDA
ARG NCCL
RUN python3 -m vastrun.onstart.boot.image_contents "torch=${TORCH}" "cuda=${CUDA}" "nccl=${NCCL}"
ENTRYPOINT ["tini", "--"]
CMD ["bash"]
ARG VARIANT
ARG VERSION
ARG REVISION
ARG BASE_NAME
LABEL org.opencontainers.image.title="vastrun" \
      org.opencontainers.image.description="What a box of vastrun trains in" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_NAME}" \
      io.vastrun.variant="${VARIANT}" \
      io.vastrun.version="${VERSION}" \
      io.vastrun.torch="${TORCH}" \
      io.vastrun.cuda="${CUDA}" \
      io.vastrun.nccl="${NCCL}"

FROM box AS cpu

FROM box AS cuda
