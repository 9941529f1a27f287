# klamm alone in an image, with the roots of public certificate authorities: `docker build -t klamm .`, or `make image`.
ARG GO=docker.io/library/golang:1.26

FROM ${GO} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build \
 && install -D bin/klamm /image/klamm \
 && install -D -m 644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt \
 && install -d -m 1777 /image/tmp \
 && install -d /volume/data

FROM scratch
COPY --from=build /image /
# A new volume takes over the owner of the folder that it is mounted on: klamm can write there without being root.
COPY --from=build --chown=65532:65532 /volume /
USER 65532:65532
# Where relative paths lie, as those of the defaults: in the volume.
WORKDIR /data
VOLUME /data
EXPOSE 9092 2380 8080
ENTRYPOINT ["/klamm"]
CMD ["serve"]
