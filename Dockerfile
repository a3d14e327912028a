# fedpriv at the versions of constraints.txt.
#   docker build -t fedpriv .
#   docker run --rm -v "$PWD/outputs:/home/fedpriv/outputs" fedpriv algo=uldp_avg rounds=5
# With PyTorch's GPU build: docker build --build-arg TORCH=default -t fedpriv .

FROM python:3.13-slim AS base
# g++ compiles the fastest training; without it fedpriv trains with torch's operations.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1
RUN useradd --create-home fedpriv

# The devcontainer ends here: it installs from the folder that it opens.
FROM base AS development
ARG TORCH=cpu
ENV TORCH=${TORCH}
USER fedpriv

FROM base AS fedpriv
ARG TORCH=cpu
WORKDIR /opt/fedpriv
COPY Makefile pyproject.toml constraints.txt README.md LICENSE ./
COPY conf conf
COPY fedpriv fedpriv
RUN make install PYTHON=python3 TORCH=${TORCH}
USER fedpriv
WORKDIR /home/fedpriv
RUN mkdir outputs
# The secret that keys digests of the data outlives the container, so that runs can be resumed.
ENV XDG_STATE_HOME=/home/fedpriv/outputs/.state
ENTRYPOINT ["/opt/fedpriv/.venv/bin/fedpriv"]
