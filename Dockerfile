# Homing in a container:
#   docker build -t homing .
#   docker run -p 1883:1883 homing
# Nothing is authenticated in this version: publish the port only where everybody may publish and subscribe.

FROM rust:1-slim-bookworm AS build
# jemalloc is built from source.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
# The dependencies first, against an empty crate: this layer lives until Cargo.toml or Cargo.lock change.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src benches \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | sort -u | while read -r name; do echo 'fn main() {}' > "benches/$name.rs"; done \
    && cargo build --release --locked --bin homing \
    && rm -rf src benches
COPY src src
COPY benches benches
# cargo compares times: what was copied may be older than the empty crate that was just built.
RUN touch src/main.rs src/lib.rs \
    && cargo build --release --locked --bin homing

FROM debian:bookworm-slim
# A fixed number, so that volumes keep their owner from one image to the next.
RUN groupadd --gid 1883 homing \
    && useradd --uid 1883 --gid homing --home-dir /var/lib/homing --no-create-home --shell /usr/sbin/nologin homing \
    && install -d -o homing -g homing -m 0750 /var/lib/homing \
    && install -d -o homing -g homing -m 0755 /run/homing \
    && install -d -m 0755 /etc/homing
COPY --from=build /build/target/release/homing /usr/local/bin/homing
COPY config/homing.toml /etc/homing/homing.toml
# All interfaces of the container; which of them are reachable is decided by `docker run -p`. A file that is mounted in place of this
# one decides for itself.
RUN sed -i 's/^listen = .*/listen = ["0.0.0.0:1883"]/' /etc/homing/homing.toml
USER homing
WORKDIR /var/lib/homing
# Whatever arguments are given: which file is read, and where the health check finds the addresses. /etc/homing/homing.toml is read
# without being named, too, but after config/homing.toml of the working directory, which is a volume here.
ENV HOMING_CONFIG=/etc/homing/homing.toml HOMING_NETWORK__ADDRESSES_FILE=/run/homing/addresses
EXPOSE 1883
# Not /etc/homing: a volume keeps the file of the image that it was made with.
VOLUME ["/var/lib/homing"]
HEALTHCHECK --interval=30s --timeout=10s --start-period=5s CMD ["homing", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["homing"]
CMD ["serve"]
