# A static binary in an empty image: no shell, no package manager, no root.
ARG BUILDER=golang:1.26
ARG RUNTIME=scratch

FROM ${BUILDER} AS build
ARG VERSION=dev
WORKDIR /src
COPY . .
# The build fetches the modules that it needs and no others, so that a prepared module cache is enough without a network.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/fence-sidecar ./cmd/fence-sidecar
# /data is where the SQLite file goes: on a volume, never in the container's own layer. /tmp is for SQLite's own use.
RUN mkdir -p /out/data /out/tmp && chmod 0700 /out/data && chmod 1777 /out/tmp

FROM ${RUNTIME}
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/tmp /tmp
COPY --from=build /out/fence-sidecar /fence-sidecar
USER 65532:65532
VOLUME /data
# The data listeners are on loopback, inside the pod, and are not exposed. 9090: /metrics and the probes.
EXPOSE 9090
ENTRYPOINT ["/fence-sidecar"]
CMD ["run", "--config", "/etc/fence-sidecar/config.yaml"]
