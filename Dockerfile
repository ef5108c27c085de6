# Homing in a container: docs/operations.md, "In a container", has the commands that build and run it, with a store, users and the pages.
# Without a password file, and without HOMING_AUTH__ANONYMOUS=always, nobody may connect.

FROM rust:1-slim-bookworm AS build
# jemalloc is built from source.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY src src
COPY benches benches
# Dependencies are kept in caches from one build to the next, in one for each architecture, because two may be built at the same time.
# A cache is no part of the image, so the program is copied out of it. cargo compares times: an older checkout that is built after a newer
# one would count as built.
ARG TARGETARCH
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=homing-$TARGETARCH,target=/build/target,sharing=locked \
    touch src/main.rs src/lib.rs crates/*/src/lib.rs \
    && cargo build --release --locked --bin homing \
    && cp target/release/homing /homing

FROM debian:bookworm-slim
# A fixed number, so that volumes keep their owner from one image to the next.
RUN groupadd --gid 1883 homing \
    && useradd --uid 1883 --gid homing --home-dir /var/lib/homing --no-create-home --shell /usr/sbin/nologin homing \
    && install -d -o homing -g homing -m 0750 /var/lib/homing \
    && install -d -o homing -g homing -m 0755 /run/homing \
    && install -d -m 0755 /etc/homing
COPY --from=build /homing /usr/local/bin/homing
COPY config/homing.toml /etc/homing/homing.toml
# Listen on all interfaces of the container. `docker run -p` decides which ports can be reached.
RUN sed -i 's/^listen = .*/listen = ["0.0.0.0:1883"]/' /etc/homing/homing.toml
USER homing
WORKDIR /var/lib/homing
# The file that is read, and the file in which the health check finds the addresses. The configuration is named here, because otherwise
# a config/homing.toml in the working directory, which is a volume, would come first.
ENV HOMING_CONFIG=/etc/homing/homing.toml HOMING_NETWORK__ADDRESSES_FILE=/run/homing/addresses
# MQTT, and the HTTP interface with its pages, which is on loopback in the container unless HOMING_ADMIN__ADDRESSES says otherwise.
EXPOSE 1883 11883
# /etc/homing is no volume, because a volume would keep the file of an old image.
VOLUME ["/var/lib/homing"]
# A start that reads a large store takes a while; a check that fails meanwhile does not count.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["homing", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["homing"]
CMD ["serve"]
