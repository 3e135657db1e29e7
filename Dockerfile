# The program `lockkeeper`, in an image without anything else: docker build --tag lockkeeper .
FROM rust:1-alpine AS build
RUN apk add --no-cache musl-dev
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package lockkeeper-cli && strip target/release/lockkeeper

FROM scratch
COPY --from=build /source/target/release/lockkeeper /lockkeeper
USER 65534:65534
ENTRYPOINT ["/lockkeeper"]
