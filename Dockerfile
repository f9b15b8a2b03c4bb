# The operator's image: two static programs, the guests, and files that Pods with the image as a volume mount others over.
#
#   docker build --tag ipu-operator .
#
# `make dist` makes the same files without a container; the folder can then take the place of the
# first stage:
#
#   buildah bud --build-context binaries=dist --tag ipu-operator .

FROM rust:1.95-bookworm AS binaries
RUN rustup target add wasm32-unknown-unknown
WORKDIR /source
COPY . .
RUN make dist && cp -r dist/. /

FROM scratch
COPY --from=binaries ipu-operator ipu-agent kubeexec.sh hostfile /
COPY --from=binaries guests /guests
USER 65532:65532
ENTRYPOINT ["/ipu-operator"]
